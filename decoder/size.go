package decoder

// Size describes the weights of a model.
type Size struct {
	Linear [][2]int // rows and columns of the weights of the layers' linear modules
	Other  int      // elements of all other weights: embedding, head, norms, biases
}

// Size returns the size of the model.
func (m *Model) Size() Size {
	n := Size{Other: int(m.plan.Parameters())}
	for _, l := range m.layers {
		for _, p := range l.projections() {
			for _, part := range p.parts {
				n.Linear = append(n.Linear, [2]int{part.out, p.in})
				n.Other -= part.out * p.in
			}
		}
	}
	return n
}
