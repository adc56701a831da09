package checkpoint

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
)

// A stack is the layers of a part of a model: the tensors of each.
type stack struct {
	name   string
	layers map[int]map[string]bool
	last   int
}

// findMissing sets Missing: the layers of the language model that the configuration counts and no file has, or else the tensors
// that its family needs. Notes are tensors of a module that a layer lacks and most others have: a guess, for modules that no
// family describes. A checkpoint without a configuration, or with layers alone, may be a part of a model on purpose; so may other
// lists of modules with gaps, such as those of an nn.Sequential.
func (m *Model) findMissing() {
	if m.Source.Config == nil || m.Source.Single && m.Architecture == "" {
		return
	}
	if !m.hasEnds() {
		return
	}
	needed := m.needed()
	for _, s := range m.stacks() {
		if family.OfLanguage(s.name) {
			if gone, first := s.gone(m.Family().Layers()); gone > 0 {
				m.Missing = append(m.Missing, fmt.Sprintf("%d of %d layers are missing, the first %s.%d", gone, m.Family().Layers(), s.name, first))
			}
		}
		// else layers lack keys and values on purpose
		if m.Source.Integer("num_kv_shared_layers") == 0 && !(needed != nil && family.OfLanguage(s.name)) {
			m.Notes = append(m.Notes, s.uneven()...)
		}
	}
	slices.Sort(m.Notes)
	if needed != nil && len(m.Missing) == 0 {
		m.findNeeded(needed)
	}
}

// needed returns the names of the tensors that the family of the model needs; nil if the family, a key of the configuration
// or the number of layers is not known.
func (m *Model) needed() iter.Seq[string] {
	f, s, err := family.Read(m.Source.Config)
	if err != nil || m.Family().Layers() == 0 {
		return nil
	}
	most := len(m.Source.Tensors()) + mostMissing + 1 // of which more than mostMissing are missing
	for _, n := range []*int{&s.Experts, &s.LocalExperts, &s.RoutedExperts} {
		*n = min(*n, most)
	}
	return f.Needed(s)
}

// mostMissing is the maximum of missing tensors that are counted: a configuration may declare any number.
const mostMissing = 1000

// findNeeded adds the first of the tensors that the family needs and no file has to Missing, with the number of the others.
// A weight is there in any form: as codes, and as one of the experts in a tensor, or as experts of which a tensor is made.
func (m *Model) findNeeded(needed iter.Seq[string]) {
	modules, stacked, single := map[string]bool{}, map[string]bool{}, map[string]bool{} // layers of experts
	for _, t := range m.Source.Tensors() {
		if i := strings.LastIndexByte(t.Name, '.'); i >= 0 && t.Name[i:] != ".bias" {
			modules[t.Name[:i]] = true
		}
	}
	for _, w := range m.Weights {
		stacked[layerOf(w.Name)] = stacked[layerOf(w.Name)] || w.stack != nil
		single[layerOf(w.Name)] = single[layerOf(w.Name)] || family.SingleExpert(w.Name)
	}
	first, n := "", 0
	for name := range needed {
		name = m.Family().Stored(name)
		otherForm := single
		if family.SingleExpert(name) {
			otherForm = stacked
		}
		if _, ok := m.byName[name]; ok || modules[strings.TrimSuffix(name, weightSuffix)] || strings.Contains(name, ".experts.") &&
			otherForm[layerOf(name)] {
			continue
		}
		if first == "" {
			first = name
		}
		if n++; n > mostMissing {
			break
		}
	}
	switch {
	case n == 1:
		m.Missing = append(m.Missing, first+" is missing")
	case n > mostMissing:
		m.Missing = append(m.Missing, fmt.Sprintf("%s and more than %d other tensors are missing", first, mostMissing-1))
	case n > 1:
		m.Missing = append(m.Missing, fmt.Sprintf("%s is missing, and %d more tensors", first, n-1))
	}
}

// layerOf returns the layer to which a tensor belongs, "" for none.
func layerOf(name string) string {
	if list, n, _, ok := family.CutLayer(name); ok {
		return fmt.Sprintf("%s.%d", list, n)
	}
	return ""
}

// gone returns how many of the first layers have no tensor, and the first of these, in a time that depends on the layers that have: a
// configuration may declare any number.
func (s *stack) gone(layers int64) (n, first int64) {
	n = layers
	for i := range s.layers {
		if int64(i) < layers {
			n--
		}
	}
	for s.layers[int(first)] != nil {
		first++
	}
	return n, first
}

// hasEnds reports whether the checkpoint has weights beside its layers.
func (m *Model) hasEnds() bool {
	return slices.ContainsFunc(m.Weights, func(w *Weight) bool {
		_, _, _, inLayer := family.CutLayer(w.Name) // such as a layer that predicts further tokens
		return !inLayer && family.IsEnd(w.Name)
	})
}

// stacks returns the layers of the parts of the model, by their names.
func (m *Model) stacks() (all []*stack) {
	byName := map[string]*stack{}
	for _, w := range m.Weights {
		list, n, tensor, ok := family.CutLayer(w.Name)
		if !ok || n > len(m.Weights) {
			continue // no number of a layer
		}
		s := byName[list]
		if s == nil {
			s = &stack{name: list, layers: map[int]map[string]bool{}}
			byName[s.name], all = s, append(all, s)
		}
		if s.layers[n] == nil {
			s.layers[n] = map[string]bool{}
		}
		s.layers[n][tensor], s.last = true, max(s.last, n)
	}
	slices.SortFunc(all, func(a, b *stack) int { return strings.Compare(a.name, b.name) })
	return all
}

// uneven returns the weights of modules that layers have in part, and most layers with that module as a whole.
func (s *stack) uneven() (found []string) {
	modules := map[string]map[string][]int{} // module, its weights as text, the layers that have these
	for layer := range s.last + 1 {
		parts := map[string][]string{}
		for tensor := range s.layers[layer] {
			module, _, _ := strings.Cut(tensor, ".")
			if strings.HasSuffix(tensor, weightSuffix) && strings.Count(tensor, ".") > 1 {
				parts[module] = append(parts[module], tensor)
			}
		}
		for module, tensors := range parts {
			slices.Sort(tensors)
			if modules[module] == nil {
				modules[module] = map[string][]int{}
			}
			text := strings.Join(tensors, " ")
			modules[module][text] = append(modules[module][text], layer)
		}
	}
	for _, kinds := range modules {
		total := 0
		for _, layers := range kinds {
			total += len(layers)
		}
		for whole, layers := range kinds {
			if 2*len(layers) <= total {
				continue
			}
			for part, few := range kinds {
				if gone := without(whole, part); gone != "" {
					found = append(found, fmt.Sprintf("%s.%d has no %s, which %d other layers have: if it is not so in the original, fetch it again",
						s.name, few[0], gone, len(layers)))
				}
			}
		}
	}
	return found
}

// without returns the first word of whole that part lacks, if all words of part are among those of whole; else "".
func without(whole, part string) (word string) {
	all := strings.Fields(whole)
	for _, w := range strings.Fields(part) {
		if !slices.Contains(all, w) {
			return ""
		}
	}
	some := strings.Fields(part)
	for _, w := range all {
		if !slices.Contains(some, w) {
			return w
		}
	}
	return ""
}
