// Package family says what the tensors of a model are, from its configuration, the shapes of its
// tensors and one row of data for each family of models. Structure decides first: a tensor of as many
// matrices as the configuration has experts holds the experts of a layer, whatever its name. Names are
// the last resort.
package family

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// A Model is the structure of a model: the numbers that its configuration declares, and what follows
// from the shapes of all tensors together. The nil Model knows nothing.
type Model struct {
	declared

	single  map[string]bool // modules with single experts, by name and period
	stacks  map[string]bool // tensors of experts that hold [experts, in, out], by name
	routers map[string]bool // weights that choose experts, by name
	further []string        // prefixes of the modules that predict further tokens
	wrapper int             // the row of wrappers of the language model's tensors
	linear  bool            // the modules c_attn, c_proj and c_fc are linear ones, unlike GPT-2's
}

// New returns the structure of a model with a config.json, nil for none, and with tensors, given as
// names and shapes.
func New(config []byte, tensors iter.Seq2[string, []int64]) *Model {
	m := &Model{declared: declare(config), single: map[string]bool{}, stacks: map[string]bool{}, routers: map[string]bool{}}
	for name := range tensors {
		for i, w := range wrappers[1:] {
			if strings.HasPrefix(name, w.prefix) {
				m.wrapper = i + 1
			}
		}
		if parent, rest, ok := cutExperts(name); ok && singleExpert.MatchString(rest) {
			m.single[parent] = true
		}
	}
	m.findStacks(tensors)
	m.findRouters(tensors)
	m.findFurther(tensors)
	for name, shape := range tensors {
		if ofGPT2.MatchString(name) && len(shape) == 2 && m.hidden(shape[1]) && !m.hidden(shape[0]) && !strings.Contains(name, "c_proj") {
			m.linear = true // c_attn and c_fc read what is as wide as the model
		}
	}
	return m
}

// OfType reports whether the model_type of the configuration, or of its text_config, is one of types.
func (m *Model) OfType(types ...string) bool {
	return m != nil && slices.ContainsFunc(m.types, func(t string) bool { return slices.Contains(types, t) })
}

// Layers returns the number of layers without those that predict further tokens; 0: unknown.
func (m *Model) Layers() int64 {
	if m == nil {
		return 0
	}
	return m.layers
}

// Further returns the number of layers or modules that predict further tokens, as the configuration declares it.
func (m *Model) Further() int64 {
	if m == nil {
		return 0
	}
	return m.next
}

// OfLanguage reports whether a list of modules, by its name, has the layers of the language model, which Layers counts.
func OfLanguage(list string) bool { return hiddenLayer.MatchString(list + ".0.") }

// findRouters finds the weights that choose experts: they are as wide as the model, have a row for
// each expert, and are beside the experts.
func (m *Model) findRouters(tensors iter.Seq2[string, []int64]) {
	parents := map[string][]string{} // the modules that have experts, and the weights of that shape
	for name := range tensors {
		if parent, _, ok := cutExperts(name); ok {
			parents[parent] = nil
		}
	}
	for name := range m.stacks {
		module, _ := splitModule(strings.TrimSuffix(name, weightSuffix))
		parents[module] = nil
	}
	for name, shape := range tensors {
		if len(shape) != 2 || !slices.Contains(m.experts, shape[0]) || !m.hidden(shape[1]) {
			continue
		}
		if _, _, ok := cutExperts(name); ok {
			continue
		}
		for at, _ := splitModule(name); at != ""; at, _ = splitModule(strings.TrimSuffix(at, ".")) {
			if _, ok := parents[at]; ok {
				parents[at] = append(parents[at], name)
				break
			}
		}
	}
	for _, names := range parents {
		if len(names) > 1 { // others have that shape by chance, such as a key projection of one head
			names = slices.DeleteFunc(names, func(name string) bool { return !routerWords.MatchString(name) })
		}
		for _, name := range names {
			m.routers[name] = true
		}
	}
}

// findFurther finds the modules that predict further tokens: lists beside that of the layers, with at
// most as many members as the configuration declares.
func (m *Model) findFurther(tensors iter.Seq2[string, []int64]) {
	if m.next == 0 {
		return
	}
	members := map[string]int64{}
	for name := range tensors {
		if list, n, ok := cutNumber(name); ok {
			members[list] = max(members[list], n+1)
		}
	}
	for list, n := range members {
		parent, _ := splitModule(strings.TrimSuffix(list, "."))
		for layers, count := range members {
			if at, _ := splitModule(strings.TrimSuffix(layers, ".")); at == parent && count >= m.layers && m.layers > m.next && n <= m.next {
				m.further = append(m.further, list)
			}
		}
	}
}

// languageLayer returns the number of the layer of the language model to which a tensor belongs.
func languageLayer(name string) (n int64, ok bool) {
	found := hiddenLayer.FindStringSubmatch(name)
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	return n, err == nil
}

// ExtraLayer reports whether a tensor belongs to one of the layers that predict further tokens after the
// last one, and that the configuration declares.
func (m *Model) ExtraLayer(name string) bool {
	n, ok := languageLayer(name)
	return ok && m != nil && m.layers > 0 && n >= m.layers && n < m.layers+m.next
}

// ExtraLayer is [Model.ExtraLayer] for settings.
func (s *Settings) ExtraLayer(name string) bool {
	return (&Model{declared: declared{layers: int64(s.NumHiddenLayers), next: int64(s.NextLayers)}}).ExtraLayer(name)
}

// predictsFurther reports whether a tensor belongs to a module that predicts further tokens.
func (m *Model) predictsFurther(name string) bool {
	if m == nil {
		return false
	}
	if n, ok := languageLayer(name); ok && m.layers > 0 {
		return n >= m.layers
	}
	return slices.ContainsFunc(m.further, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// cutNumber returns the part of a name before its first component that is a number, and the number.
func cutNumber(name string) (list string, n int64, ok bool) {
	at := 0
	for part := range strings.SplitSeq(name, ".") {
		if n, err := strconv.ParseInt(part, 10, 32); err == nil && n >= 0 && at > 0 {
			return name[:at], n, true
		}
		at += len(part) + 1
	}
	return "", 0, false
}

// ExpertsOf returns the module of the experts of a layer to which a weight belongs, such as model.layers.0.mlp.experts; "" for none.
func ExpertsOf(name string) string {
	parent, _, ok := cutExperts(name)
	if !ok {
		return ""
	}
	return parent + "experts"
}

// cutExperts returns the part of a name before its component "experts", and that after it.
func cutExperts(name string) (parent, rest string, ok bool) {
	if before, after, found := strings.Cut("."+name, ".experts."); found && after != "" {
		return strings.TrimPrefix(before+".", "."), after, true
	}
	return "", "", false
}

// splitModule splits off the last word of a module's name, after its period.
func splitModule(module string) (parent, name string) {
	i := strings.LastIndexByte(module, '.') + 1
	return module[:i], module[i:]
}

const weightSuffix = ".weight"
