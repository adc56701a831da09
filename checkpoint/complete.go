package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// layerName divides the name of a tensor of a layer: the modules before, the number of the layer, and the tensor in it.
var layerName = regexp.MustCompile(`^((?:[A-Za-z_]+\.)*?(?:layers|h|blocks))\.(\d+)\.(.+)$`)

// languageStacks are the modules that hold the layers of a language model, which num_hidden_layers counts.
var languageStacks = []string{"model.layers", "language_model.model.layers", "model.language_model.layers", "transformer.h", "layers"}

// A stack is the layers of a part of a model: the tensors of each.
type stack struct {
	name   string
	layers map[int]map[string]bool
	last   int
}

// findMissing sets Missing: what the configuration or the other layers need, and no file has. It goes by the number of
// layers, and by layers that have a part of what others have in the same module. A checkpoint without a configuration,
// or with layers alone, may be a part of a model on purpose.
func (m *Model) findMissing() {
	if m.Source.Config == nil || m.Source.Single && m.Architecture == "" {
		return
	}
	report := func(format string, args ...any) { m.Missing = append(m.Missing, fmt.Sprintf(format, args...)) }
	if !m.hasEnds() {
		return
	}
	count := int(m.Source.Integer("num_hidden_layers"))
	for _, s := range m.stacks() {
		want := s.last + 1
		if slices.Contains(languageStacks, s.name) {
			want = max(want, count)
		}
		var gone []int
		for i := range want {
			if s.layers[i] == nil {
				gone = append(gone, i)
			}
		}
		if len(gone) > 0 {
			report("%d of %d layers are missing, the first %s.%d", len(gone), want, s.name, gone[0])
		}
		if m.Source.Integer("num_kv_shared_layers") == 0 { // else layers lack keys and values on purpose
			s.missingTensors(report)
		}
	}
}

// ends are weights before and after the layers of a language model, at least one of which is left when others are lost.
var ends = []string{"embed_tokens.weight", "lm_head.weight", "model.norm.weight", "wte.weight", "ln_f.weight"}

// hasEnds reports whether the checkpoint has weights beside its layers.
func (m *Model) hasEnds() bool {
	return slices.ContainsFunc(m.Weights, func(w *Weight) bool {
		if layerName.MatchString(w.Name) { // such as a layer that predicts further tokens
			return false
		}
		return slices.ContainsFunc(ends, func(end string) bool { return w.Name == end || strings.HasSuffix(w.Name, "."+end) })
	})
}

// stacks returns the layers of the parts of the model, by their names.
func (m *Model) stacks() (all []*stack) {
	byName := map[string]*stack{}
	for _, w := range m.Weights {
		name := layerName.FindStringSubmatch(w.Name)
		if name == nil {
			continue
		}
		n, err := strconv.Atoi(name[2])
		if err != nil || n > len(m.Weights) {
			continue // no number of a layer
		}
		s := byName[name[1]]
		if s == nil {
			s = &stack{name: name[1], layers: map[int]map[string]bool{}}
			byName[s.name], all = s, append(all, s)
		}
		if s.layers[n] == nil {
			s.layers[n] = map[string]bool{}
		}
		s.layers[n][name[3]], s.last = true, max(s.last, n)
	}
	slices.SortFunc(all, func(a, b *stack) int { return strings.Compare(a.name, b.name) })
	return all
}

// missingTensors reports weights of modules that layers have in part, and most layers with that module as a whole.
func (s *stack) missingTensors(report func(format string, args ...any)) {
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
					report("tensor %s.%d.%s is missing, which %d other layers have", s.name, few[0], gone, len(layers))
				}
			}
		}
	}
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
