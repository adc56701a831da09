package family

import (
	"iter"
	"slices"
	"strings"
)

// A Stack is the layout of a tensor with the matrices of all experts of a layer. Those of linear
// modules are [out, in].
type Stack struct {
	Transposed  bool     // the files of the model have [experts, in, out]
	Interleaved bool     // rows of gate and up alternate; else those of gate come first
	Biased      bool     // the experts have biases
	Module      string   // of the experts: expert N is Module.N
	Parts       []string // the linear modules of an expert whose rows a matrix has, in their order

	Unknown string // why the layout is not known; "": it is
	Guess   string // what the layout rests on if neither shapes nor the family decide; "": they do
	Listed  bool   // the layout is that of the family's row
}

// stackRows are the families with stacks that differ from those of transformers 5, which are
// [experts, out, in] with the rows of gate first. Shapes decide where they can. Sources: the classes
// of experts of transformers 5.24 (models/*/modeling_*.py, use_experts_implementation), and the files
// of the published models.
var stackRows = []struct {
	types []string
	Stack
}{
	{[]string{"llama4", "llama4_text", "aria", "aria_text", "openai_privacy_filter"}, Stack{Transposed: true}},
	{[]string{"qwen3_vl_moe", "qwen3_vl_moe_text"}, Stack{Transposed: true}}, // as published; transformers 5 has [experts, out, in]
	{[]string{"gpt_oss"}, Stack{Transposed: true, Interleaved: true, Biased: true}},
	{[]string{"qwen3_5_moe", "qwen3_5_moe_text"}, Stack{}},
}

// stackWords are the last words of the names of stacks, and the modules of a single expert under the
// names that clients look up. An output is as tall as the model, an input as wide.
var stackWords = []struct {
	words  []string
	parts  []string
	output bool
}{
	{[]string{GateUpExperts, "gate_and_up_proj", "input_linear", "w13", "w13_weight"}, []string{"gate_proj", "up_proj"}, false},
	{[]string{"gate_proj", "w1"}, []string{"gate_proj"}, false},
	{[]string{"up_proj", "w3"}, []string{"up_proj"}, false},
	{[]string{DownExperts, "output_linear", "w2", "w2_weight"}, []string{"down_proj"}, true},
}

// The tensors of fused experts in files of transformers, in their module.
const (
	GateUpExperts = "gate_up_proj"
	DownExperts   = "down_proj"
)

// IsFused reports whether a name is that of fused experts in files of transformers.
func IsFused(name string) bool {
	return strings.HasSuffix(name, ".experts."+GateUpExperts) || strings.HasSuffix(name, ".experts."+DownExperts)
}

// StackOf returns the layout of the experts that a tensor holds; nil if it does not hold all experts of a
// layer. stored is true for the shape in a file of the model, false for [experts, out, in].
func (m *Model) StackOf(name string, shape []int64, stored bool) *Stack {
	if m == nil || !m.isStack(name, shape) {
		return nil
	}
	module, word := splitModule(strings.TrimSuffix(name, weightSuffix))
	s := &Stack{Module: strings.TrimSuffix(module, ".")}
	if row := m.StackRow(); row != nil {
		s.Transposed, s.Interleaved, s.Biased, s.Listed = row.Transposed, row.Interleaved, row.Biased, true
	}
	if _, last := splitModule(s.Module); last != "experts" {
		s.Module = strings.TrimPrefix(s.Module+".experts", ".")
	}
	output, known := false, false
	for _, row := range stackWords {
		if slices.Contains(row.words, word) {
			s.Parts, output, known = row.parts, row.output, true
		}
	}
	switch {
	case len(shape) != 3:
		s.Unknown = "all experts of a layer in one matrix"
	case sharedExperts.MatchString(name):
		s.Unknown = "shared experts in one tensor, which clients read in no known layout"
	case !known:
		s.Unknown = "experts in one tensor, whose name does not say which modules it holds"
	case len(s.Parts) == 2 && shape[1]%2 != 0 && shape[2]%2 != 0:
		s.Unknown = "experts in one tensor with an odd number of rows, which are not those of gate and up"
	default:
		m.orient(s, name, shape, output, stored)
	}
	return s
}

// orient decides whether a stack is transposed.
func (m *Model) orient(s *Stack, name string, shape []int64, output, stored bool) {
	straight, transposed := 2, 1 // the dimension that is as wide as the model
	if output {
		straight, transposed = 1, 2
	}
	isStraight, isTransposed := m.hidden(shape[straight]), m.hidden(shape[transposed])
	switch fromSibling, ok := m.stacks[name]; {
	case !isStraight && !isTransposed:
		s.Unknown = "experts in one tensor, no dimension of which is as wide as the model"
	case !stored && !isStraight:
		s.Unknown = "experts in one tensor, whose rows are not as wide as the model"
	case !stored, isStraight && isTransposed && s.Listed: // the row decides
	case isStraight != isTransposed:
		s.Transposed = isTransposed
	case ok:
		s.Transposed = fromSibling
	default:
		s.Guess = "the layout of experts is taken to be [experts, out, in], as in transformers 5: shapes and the family do not decide"
	}
}

// StackRow returns what the row of the family says about stacks; nil if it has none.
func (m *Model) StackRow() *Stack {
	for i := range stackRows {
		if m.OfType(stackRows[i].types...) {
			return &stackRows[i].Stack
		}
	}
	return nil
}

// isStack reports whether a tensor has a matrix for each expert of a layer: it has as many as the
// configuration has experts, or belongs to the module of all experts.
func (m *Model) isStack(name string, shape []int64) bool {
	if len(shape) < 2 || slices.Contains(shape, 0) || notStack.MatchString(name) {
		return false
	}
	parent, _, below := cutExperts(name)
	if below && m.single[parent] {
		return false
	}
	count := slices.Contains(m.experts, shape[0]) || sharedExperts.MatchString(name)
	if len(shape) == 2 { // biases are [experts, out]
		return below && shape[0] > 1 && !count && slices.ContainsFunc(m.experts, func(n int64) bool { return shape[0]%n == 0 && shape[0] > n })
	}
	return below || count && len(shape) == 3 && shape[1] > 1 && shape[2] >= leastColumns
}

// leastColumns is the number of columns below which a matrix is taken for the kernel of a convolution.
const leastColumns = 16

// findStacks finds the stacks whose shape alone decides whether they are transposed, and gives the same
// layout to the others of their module.
func (m *Model) findStacks(tensors iter.Seq2[string, []int64]) {
	modules, open := map[string]bool{}, map[string][]string{}
	for name, shape := range tensors {
		s := m.StackOf(name, shape, true)
		switch {
		case s == nil || s.Unknown != "":
		case s.Guess != "":
			open[s.Module] = append(open[s.Module], name)
		default:
			modules[s.Module], m.stacks[name] = s.Transposed, s.Transposed
		}
	}
	for module, names := range open {
		if transposed, ok := modules[module]; ok {
			for _, name := range names {
				m.stacks[name] = transposed
			}
		}
	}
}
