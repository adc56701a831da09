package checkpoint

import (
	"slices"
	"strconv"
	"strings"
)

// joined are the modules that engines join into one matrix when they load a model,
// and what they call it, where that is known. One matrix has one scheme and one
// global scale, and its parts have the same input.
var joined = []struct {
	whole string
	parts []string
}{
	{"qkv_proj", []string{"q_proj", "k_proj", "v_proj"}},
	{"", []string{"wq", "wk", "wv"}},
	{"", []string{"query", "key", "value"}},
	{"", []string{"q_a_proj", "kv_a_proj_with_mqa"}},
	{"", []string{"wq_a", "wkv_a_with_mqa"}},
	{"gate_up_proj", []string{"gate_proj", "up_proj"}},
	{"", []string{"w1", "w3"}},
	{"", []string{"in_proj_qkv", "in_proj_z"}},
}

// Joined returns a name that the weights of one joined matrix share, and which part of
// it a weight is: the weight's own name, and part 0, where it is not part of one.
// Experts have matrices of their own, since the parent's name holds their number.
func Joined(weight string) (matrix string, part int) {
	module, ok := strings.CutSuffix(weight, weightSuffix)
	if !ok {
		return weight, 0
	}
	parent, name := splitModule(module)
	for i, m := range joined {
		if part := slices.Index(m.parts, name); part >= 0 {
			return parent + "\x00" + strconv.Itoa(i), part
		}
	}
	return weight, 0
}

// JoinedParts returns the modules that checkpoints have in place of one that an
// engine calls by the name of a joined matrix; the module itself where it is none.
func JoinedParts(module string) []string {
	parent, name := splitModule(module)
	for _, m := range joined {
		if m.whole == name && name != "" {
			parts := make([]string, len(m.parts))
			for i, part := range m.parts {
				parts[i] = parent + part
			}
			return parts
		}
	}
	return []string{module}
}

// splitModule splits the last word off a module's name, its period with the rest.
func splitModule(module string) (parent, name string) {
	i := strings.LastIndexByte(module, '.') + 1
	return module[:i], module[i:]
}
