package llama

import (
	"fmt"
	"maps"
	"slices"
)

// State returns the state of delayed scaling between two steps, by the name of the
// module; nothing under other recipes. With the parameters it is all that a model
// remembers.
func (m *Model) State() map[string][]float32 {
	state := make(map[string][]float32)
	for name, s := range m.stateful() {
		if v := s.State(); v != nil {
			state[name] = v
		}
	}
	return state
}

// SetState takes what State returned of a model of the same configuration.
func (m *Model) SetState(state map[string][]float32) error {
	modules := m.stateful()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if modules[name] == nil {
			return fmt.Errorf("the state is that of another model: there is no %s here", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if err := modules[name].SetState(state[name]); err != nil {
			return err
		}
	}
	return nil
}

// A stateful module has a state of delayed scaling.
type stateful interface {
	State() []float32
	SetState([]float32) error
}

func (m *Model) stateful() map[string]stateful {
	modules := make(map[string]stateful)
	for _, l := range m.layers {
		modules[l.attention.Name] = l.attention
		for _, p := range l.projections() {
			if p.linear != nil {
				modules[p.linear.Name] = p.linear
			}
		}
	}
	return modules
}
