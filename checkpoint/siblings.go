package checkpoint

import (
	"slices"
	"strconv"
	"strings"
)

// joined are the modules that engines fuse into one matrix, and the engines' name of it, if
// known. The fused matrix has one scheme and one global scale, and its parts have the same input.
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

// Joined returns a name that the weights of one fused matrix share, and the index of the weight
// in it: the weight's own name and 0 if it is not part of one. Experts have separate matrices,
// because the parent's name contains their number.
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

// JoinedParts returns the modules of a checkpoint for the engines' name of a fused matrix, or the
// module itself.
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

// splitModule splits off the last word of a module's name, after its period.
func splitModule(module string) (parent, name string) {
	i := strings.LastIndexByte(module, '.') + 1
	return module[:i], module[i:]
}
