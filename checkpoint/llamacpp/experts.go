package llamacpp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/family"
)

// isRouter reports whether a tensor of a GGUF file is the weight of a module that chooses
// experts.
func isRouter(name string) bool {
	return strings.HasSuffix(name, "."+family.GGUFRouter+".weight") || isSharedRouter(name)
}

func isSharedRouter(name string) bool {
	return strings.HasSuffix(name, "."+family.GGUFSharedRouter+".weight")
}

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
	e, found := m.architecture.Experts, expertName.FindStringSubmatch(name)
	if e == nil || found == nil || found[2] != e.Module {
		return Place{}, false, nil
	}
	n, err := strconv.Atoi(found[3])
	if err != nil || n >= m.config.experts() {
		return Place{}, false, fmt.Errorf("tensor %s: it belongs to expert %s, but config.json has %d experts", name, found[3],
			m.config.experts())
	}
	for _, part := range e.Parts {
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
	if a.Experts == nil || a.Experts.Fused || found == nil || len(shape) == 0 || shape[0] > maxExperts {
		return nil
	}
	for _, part := range a.Experts.Parts {
		if part[1] != found[2] {
			continue
		}
		for n := range shape[0] {
			names = append(names, fmt.Sprintf("model.layers.%s.%s.%d.%s%s", found[1], a.Experts.Module, n, part[0], found[3]))
		}
	}
	return names
}

// experts returns the number of experts in a layer.
func (c config) experts() int { return max(c.LocalExperts, c.Experts, c.RoutedExperts) }

// normalizes reports whether the weights of the chosen experts sum to one.
func (c config) normalizes() bool { return c.NormTopK != nil && *c.NormTopK }

// checkExperts returns an error if llama.cpp would compute the mixture differently.
func (m *Model) checkExperts() error {
	c, a := &m.config, m.architecture
	e := a.Experts
	switch {
	case e == nil && c.experts() > 0:
		return fmt.Errorf("a mixture of %d experts: %s is written as dense models only", c.experts(), c.Architectures[0])
	case e == nil:
		return nil
	case c.experts() <= 0 || c.experts() > maxExperts:
		return fmt.Errorf("the number of experts is %d, but llama.cpp supports 1 to %d: fetch it again", c.experts(), maxExperts)
	case c.ExpertsChosen <= 0 || c.ExpertsChosen > c.experts():
		return fmt.Errorf("num_experts_per_tok is %d of %d experts: fetch it again", c.ExpertsChosen, c.experts())
	case !e.Configured:
		return nil
	case c.ExpertWidth <= 0:
		return fmt.Errorf("moe_intermediate_size is missing or not a positive number: fetch it again")
	case e.Shared && c.SharedWidth <= 0:
		return fmt.Errorf("shared_expert_intermediate_size is missing or not a positive number: fetch it again")
	case c.normalizes() != e.Normalized:
		return fmt.Errorf("norm_topk_prob is %v, and llama.cpp runs %s with %v", c.normalizes(), a.Name, e.Normalized)
	case len(c.DenseLayers) > 0, c.SparseStep > 1:
		return fmt.Errorf("some layers have no experts (mlp_only_layers, decoder_sparse_step), and llama.cpp runs %s with experts in all", a.Name)
	}
	return nil
}

// maxExperts is LLAMA_MAX_EXPERTS.
const maxExperts = 512

// expertParameters returns the parameters of a mixture of experts.
func expertParameters(e *family.GGUFExperts) []parameter {
	rows := []parameter{
		{"expert_count", "num_local_experts", count(func(c *config) int { return c.experts() })},
		{"expert_used_count", "num_experts_per_tok", count(func(c *config) int { return c.ExpertsChosen })},
	}
	switch {
	case e.Routed:
		rows[0].config = "n_routed_experts"
		rows = append(rows, parameter{"expert_feed_forward_length", "moe_intermediate_size", count(func(c *config) int { return c.ExpertWidth })})
	case e.Fused:
		rows = append(rows, parameter{"expert_feed_forward_length", "", count(func(c *config) int { return c.IntermediateSize })})
	case e.Configured:
		rows[0].config = "num_experts"
		rows = append(rows, parameter{"expert_feed_forward_length", "moe_intermediate_size", count(func(c *config) int { return c.ExpertWidth })})
	}
	if e.Shared {
		rows = append(rows, parameter{"expert_shared_feed_forward_length", "shared_expert_intermediate_size",
			count(func(c *config) int { return c.SharedWidth })})
	}
	return rows
}
