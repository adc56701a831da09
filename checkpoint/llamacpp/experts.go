package llamacpp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// experts describes the layout of a mixture of experts in a layer. A checkpoint has separate
// matrices for each expert; llama.cpp stacks those of all experts in one tensor.
type experts struct {
	module     string      // followed by the number of the expert
	parts      [][2]string // modules of an expert, and their stacked tensors
	beside     [][2]string // other modules of the layer, like the rows of inLayer
	routed     bool        // config.json has the keys of DeepSeek
	fused      bool        // the checkpoint has all experts of a layer in one tensor, and their width as intermediate_size
	configured bool        // config.json has the width, norm_topk_prob and the dense layers, as that of Qwen
	shared     bool        // another expert gets all tokens
	normalized bool        // llama.cpp normalizes the weights of the chosen experts to a sum of 1
}

// Sources: the converter's classes for these models (conversion/llama.py, qwen.py), the tables
// of package gguf, and the calls of build_moe_ffn in the loader's graphs.
var (
	mixtral = experts{
		module:     "block_sparse_moe.experts",
		parts:      [][2]string{{"w1", "ffn_gate_exps"}, {"w2", "ffn_down_exps"}, {"w3", "ffn_up_exps"}},
		beside:     [][2]string{{"block_sparse_moe.gate", router}},
		normalized: true,
	}
	qwenParts    = [][2]string{{"gate_proj", "ffn_gate_exps"}, {"down_proj", "ffn_down_exps"}, {"up_proj", "ffn_up_exps"}}
	qwen2Experts = experts{
		module: "mlp.experts",
		parts:  qwenParts,
		beside: [][2]string{
			{"mlp.gate", router}, {"mlp.shared_expert_gate", sharedRouter},
			{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"}, {"mlp.shared_expert.down_proj", "ffn_down_shexp"}, {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
		},
		configured: true,
		shared:     true,
	}
	qwen3Experts = experts{module: "mlp.experts", parts: qwenParts, beside: [][2]string{{"mlp.gate", router}}, configured: true, normalized: true}

	gptOSSExperts = experts{module: "mlp.experts", parts: qwenParts, beside: [][2]string{{"mlp.router", router}}, fused: true}
)

// The modules that choose experts. The shared expert's module is a matrix of one row in
// checkpoints and a vector in GGUF.
const (
	router       = "ffn_gate_inp"
	sharedRouter = "ffn_gate_inp_shexp"
)

// isRouter reports whether a tensor of a GGUF file is the weight of a module that chooses
// experts.
func isRouter(name string) bool {
	return strings.HasSuffix(name, "."+router+".weight") || isSharedRouter(name)
}

func isSharedRouter(name string) bool { return strings.HasSuffix(name, "."+sharedRouter+".weight") }

// Shape returns the shape in the GGUF file of a tensor with the given shape in the checkpoint.
// For an expert, it is the shape of one expert in the stacked tensor.
func (p Place) Shape(shape []int64) []int64 {
	if isSharedRouter(p.Name) && len(shape) == 2 && shape[0] == 1 {
		return shape[1:]
	}
	return shape
}

// Stacked returns the shape of the tensor that stacks all experts, given the shape of one.
func (p Place) Stacked(shape []int64) []int64 {
	if p.Experts == 0 {
		return shape
	}
	return slices.Concat([]int64{int64(p.Experts)}, shape)
}

// StackedScales returns the shape of the global scales of the stacked tensor.
func (p Place) StackedScales() []int64 { return []int64{int64(max(1, p.Experts))} }

var (
	expertName  = regexp.MustCompile(`^model\.layers\.(\d+)\.(.+)\.(\d+)\.(\w+)\.weight$`)
	expertsName = regexp.MustCompile(`^blk\.(\d+)\.(\w+_exps)(\.\w+)$`)
)

// placeExpert returns the place of a matrix of an expert. ok is false for other tensors.
func (m *Model) placeExpert(name string) (p Place, ok bool, err error) {
	e, found := m.architecture.experts, expertName.FindStringSubmatch(name)
	if e == nil || found == nil || found[2] != e.module {
		return Place{}, false, nil
	}
	n, err := strconv.Atoi(found[3])
	if err != nil || n >= m.config.experts() {
		return Place{}, false, fmt.Errorf("tensor %s: it belongs to expert %s, but config.json has %d experts", name, found[3], m.config.experts())
	}
	for _, part := range e.parts {
		if part[0] == found[4] {
			return Place{Name: "blk." + found[1] + "." + part[1] + ".weight", Experts: m.config.experts(), Expert: n}, true, nil
		}
	}
	return Place{}, false, nil
}

// originals returns the checkpoint's names of the matrices in a stacked tensor, or in the
// tensor of its scales; nil for other tensors.
func (a architecture) originals(name string, shape []int64) (names []string) {
	found := expertsName.FindStringSubmatch(name)
	if a.experts == nil || a.experts.fused || found == nil || len(shape) == 0 || shape[0] > maxExperts {
		return nil
	}
	for _, part := range a.experts.parts {
		if part[1] != found[2] {
			continue
		}
		for n := range shape[0] {
			names = append(names, fmt.Sprintf("model.layers.%s.%s.%d.%s%s", found[1], a.experts.module, n, part[0], found[3]))
		}
	}
	return names
}

// experts returns the number of experts in a layer.
func (c config) experts() int { return max(c.LocalExperts, c.Experts, c.RoutedExperts) }

// checkExperts returns an error if llama.cpp would compute the mixture differently.
func (m *Model) checkExperts() error {
	c, a := &m.config, m.architecture
	e := a.experts
	switch {
	case e == nil && c.experts() > 0:
		return fmt.Errorf("a mixture of %d experts: %s is written as dense models only", c.experts(), c.Architectures[0])
	case e == nil:
		return nil
	case c.experts() <= 0 || c.experts() > maxExperts:
		return fmt.Errorf("the number of experts is %d, but llama.cpp supports 1 to %d: fetch it again", c.experts(), maxExperts)
	case c.ExpertsUsed <= 0 || c.ExpertsUsed > c.experts():
		return fmt.Errorf("num_experts_per_tok is %d of %d experts: fetch it again", c.ExpertsUsed, c.experts())
	case !e.configured:
		return nil
	case c.ExpertSize <= 0:
		return fmt.Errorf("moe_intermediate_size is missing or not a positive number: fetch it again")
	case e.shared && c.SharedExpertSize <= 0:
		return fmt.Errorf("shared_expert_intermediate_size is missing or not a positive number: fetch it again")
	case c.Normalize != e.normalized:
		return fmt.Errorf("norm_topk_prob is %v, and llama.cpp runs %s with %v", c.Normalize, a.name, e.normalized)
	case len(c.DenseLayers) > 0, c.SparseStep > 1:
		return fmt.Errorf("some layers have no experts (mlp_only_layers, decoder_sparse_step), and llama.cpp runs %s with experts in all", a.name)
	}
	return nil
}

// maxExperts is LLAMA_MAX_EXPERTS.
const maxExperts = 512

// parameters returns the parameters of a mixture of experts.
func (e *experts) parameters() []parameter {
	rows := []parameter{
		{"expert_count", "num_local_experts", count(func(c *config) int { return c.experts() })},
		{"expert_used_count", "num_experts_per_tok", count(func(c *config) int { return c.ExpertsUsed })},
	}
	switch {
	case e.routed:
		rows[0].config = "n_routed_experts"
		rows = append(rows, parameter{"expert_feed_forward_length", "moe_intermediate_size", count(func(c *config) int { return c.ExpertSize })})
	case e.fused:
		rows = append(rows, parameter{"expert_feed_forward_length", "", count(func(c *config) int { return c.IntermediateSize })})
	case e.configured:
		rows[0].config = "num_experts"
		rows = append(rows, parameter{"expert_feed_forward_length", "moe_intermediate_size", count(func(c *config) int { return c.ExpertSize })})
	}
	if e.shared {
		rows = append(rows, parameter{"expert_shared_feed_forward_length", "shared_expert_intermediate_size", count(func(c *config) int { return c.SharedExpertSize })})
	}
	return rows
}
