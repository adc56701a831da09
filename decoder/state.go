package decoder

import (
	"fmt"
	"maps"
	"slices"
)

// State returns the state of delayed scaling between two steps, by the name of the module. It is empty
// under other recipes. A model has no other state than this and its parameters.
func (m *Model) State() map[string][]float32 {
	state := make(map[string][]float32)
	for name, s := range m.stateful() {
		if v := s.State(); v != nil {
			state[name] = v
		}
	}
	return state
}

// SetState restores what State returned for a model of the same configuration.
func (m *Model) SetState(state map[string][]float32) error {
	modules := m.stateful()
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if modules[name] == nil {
			return fmt.Errorf("state of another model: it has %s, which this model does not have", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if err := modules[name].SetState(state[name]); err != nil {
			return err
		}
	}
	return nil
}

// A stateful module has state of delayed scaling.
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
