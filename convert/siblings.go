package convert

import (
	"fmt"
	"slices"
	"strings"
)

// fused are the modules that engines join into one matrix, which has one global
// scale: siblings must share theirs, or the engine rescales or refuses them.
var fused = [][]string{
	{"q_proj", "k_proj", "v_proj"},
	{"wq", "wk", "wv"},
	{"query", "key", "value"},
	{"q_a_proj", "kv_a_proj_with_mqa"},
	{"wq_a", "wkv_a_with_mqa"},
	{"gate_proj", "up_proj"},
	{"w1", "w3"},
	{"in_proj_qkv", "in_proj_z"},
}

// siblingGroup returns a name that the weights of one fused matrix share: the
// weight's own where it is not part of one. Experts are groups of their own,
// since the parent's name holds their number.
func siblingGroup(weight string) string {
	module, ok := strings.CutSuffix(weight, ".weight")
	if !ok {
		return weight
	}
	parent, name := "", module
	if i := strings.LastIndexByte(module, '.'); i >= 0 {
		parent, name = module[:i], module[i+1:]
	}
	for i, set := range fused {
		if slices.Contains(set, name) {
			return fmt.Sprintf("%s\x00%d", parent, i)
		}
	}
	return weight
}
