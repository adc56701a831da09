package decoder

// Work is what linear layers do for one token.
type Work struct {
	Bytes    int // of weights that are read, in the form in which they are multiplied
	Products int // multiplications
}

// Work returns the work of the layers, and that of the head. Of experts, it counts those that a
// token takes.
func (m *Model) Work() (layers, head Work) {
	for _, l := range m.layers {
		for _, p := range l.all() {
			layers.add(p.work(), 1)
		}
		if x := l.experts; x != nil {
			for i := range x.each { // all of the same size
				layers.add(x.each[i].gateUp.work(), -1)
				layers.add(x.each[i].down.work(), -1)
			}
			layers.add(x.each[0].gateUp.work(), x.plan.Chosen)
			layers.add(x.each[0].down.work(), x.plan.Chosen)
		}
	}
	return layers, m.head.work()
}

func (w *Work) add(x Work, times int) {
	w.Bytes += times * x.Bytes
	w.Products += times * x.Products
}

func (p *projection) work() (w Work) {
	for _, part := range p.parts {
		w.Products += part.out * p.in
	}
	w.Bytes = p.bytes()
	return w
}
