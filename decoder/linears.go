package decoder

// A LinearModule is a linear layer that recipes quantize, for callers that observe inputs.
type LinearModule struct {
	Name    string   // that nn.Observer.Linear receives
	In      int      // the width of its input
	Out     int      // the rows of its weights, together
	Modules []string // of the checkpoint, which share the input; experts of a stack as checkpoint.Weight.Split names them

	// Of an expert that not all tokens reach: the kind of linear layer, which the experts of a layer of the model have
	// each, and whether their inputs are tokens of the same residual stream. Kind is "" for other linear layers.
	Kind   string
	Stream bool
}

// LinearModules returns the linear layers of layer i that recipes quantize, in the order of the computation. Routers are not
// among them.
func (m *Model) LinearModules(i int) (list []LinearModule) {
	l := m.layers[i]
	kind := map[*projection]string{}
	if l.experts != nil {
		for e := range l.experts.each {
			kind[&l.experts.each[e].gateUp], kind[&l.experts.each[e].down] = "gate_up", "down"
		}
	}
	for _, p := range l.projections() {
		one := LinearModule{Name: p.name, In: p.in, Kind: kind[p], Stream: kind[p] == "gate_up"}
		for _, q := range p.parts {
			one.Out += q.out
			one.Modules = append(one.Modules, m.storedModules(q)...)
		}
		list = append(list, one)
	}
	return list
}

// StoredModule returns the name in the checkpoint of a module of the model.
func (m *Model) StoredModule(module string) string {
	if m.source == nil {
		return module
	}
	return m.source.Family().Stored(module)
}

// storedModules returns the modules of the checkpoint that hold a part.
func (m *Model) storedModules(q part) []string {
	module := m.StoredModule(q.module)
	if q.of > 0 && m.source != nil {
		if w, ok := m.source.Lookup(module); ok {
			if modules := w.ExpertModule(q.expert); modules != nil {
				return modules
			}
		}
	}
	return []string{module}
}
