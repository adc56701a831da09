package lint

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/quant"
)

// fusedRules are about weights that engines fuse into one matrix, and about the experts of a layer.
var fusedRules = []Rule{
	{
		ID: "L01", Name: "set-global", Severity: Error, Needs: Scalars,
		What:   "global scales of a fused set differ",
		Why:    "the client keeps one of them, and the other weights become too large or too small",
		Remedy: "`repair`, or quantize again",
		Source: "vllm#54974",
	},
	{
		ID: "L02", Name: "set-format", Severity: Error,
		What:   "weights of a fused set have several formats, or are quantized in part",
		Why:    "a fused module has one scheme: the client rejects the checkpoint",
		Remedy: "quantize again with one format for the set",
		Source: "vllm#47473",
	},
	{
		ID: "L03", Name: "expert-format", Severity: Error, clients: engines, check: expertFormats,
		explains: []string{"set-format"},
		What:     "experts of a layer have several formats, or are quantized in part",
		Why:      "the client has one scheme for the experts of a layer, that of the first",
		Remedy:   "quantize again with one format for the experts of a layer",
		Source:   "sglang#31827",
	},
	{
		ID: "L04", Name: "expert-gate-up", Severity: Error, Needs: Scalars,
		What:   "the global scales of gate and up of an expert differ",
		Why:    "the client uses that of gate for both",
		Remedy: "`repair`, or quantize again",
		Source: "TensorRT-LLM#14199",
	},
	{
		ID: "L28", Name: "partial-tile", Severity: Error,
		What:   "a block of 128×128 would have rows of two weights of a fused matrix, or is partial where the client divides evenly",
		Why:    "the client rejects the weight, or multiplies rows by scales of others",
		Remedy: "quantize again with a format of rows or of blocks of 32, or exclude the weight",
		Source: "vllm#53132",
	},
	{
		ID: "L29", Name: "kv_b-tile", Severity: Error, clients: []string{"trtllm"}, check: latentTiles,
		What:   "the heads of kv_b_proj end inside a block of 128×128",
		Why:    "the client divides it into keys and values by heads, with their scales",
		Remedy: "exclude kv_b_proj",
		Source: "modeling_deepseekv3.py of TensorRT-LLM",
	},
}

// expertFormats: all experts of a layer have one format. Those that do not have the most frequent one are reported.
func expertFormats(c *checker) {
	layers := map[string]map[string][]*checkpoint.Weight{} // by layer and format
	for _, w := range c.Weights {
		if !family.SingleExpert(w.Name) || len(w.Shape) != 2 {
			continue
		}
		layer := family.ExpertsOf(w.Name)
		if layers[layer] == nil {
			layers[layer] = map[string][]*checkpoint.Weight{}
		}
		layers[layer][w.FormatName()] = append(layers[layer][w.FormatName()], w)
	}
	for _, formats := range layers {
		names := slices.SortedFunc(maps.Keys(formats), func(a, b string) int {
			return cmp.Or(len(formats[b])-len(formats[a]), strings.Compare(a, b))
		})
		for _, name := range names[1:] {
			for _, w := range formats[name] {
				if usual := formats[names[0]][0]; usual.Quantized() || w.Quantized() {
					c.report(w.Name, "it is %s and %s is %s, and the client has one format for the experts of a layer", name, usual.Name, names[0])
				}
			}
		}
	}
}

// latentTiles: the rows of kv_b_proj are, head by head, those of keys and those of values.
func latentTiles(c *checker) {
	keys, values := c.Source.Integer("qk_nope_head_dim"), c.Source.Integer("v_head_dim")
	for _, w := range c.Weights {
		if !w.Quantized() || w.Format.Name != quant.FP8Block.Name || !strings.HasSuffix(w.Name, ".kv_b_proj.weight") || keys+values == 0 {
			continue
		}
		if rows := int64(w.Format.Block.Rows); keys%rows != 0 || values%rows != 0 {
			c.report(w.Name, "a head has %d rows of keys and %d of values, not multiples of %d, and the client divides the weight there", keys,
				values, rows)
		}
	}
}

// sets calls f with the two-dimensional weights of each fused matrix that has several.
func (c *checker) sets(f func(weights []*checkpoint.Weight)) {
	matrices := map[string][]*checkpoint.Weight{}
	var order []string
	for _, w := range c.Weights {
		if len(w.Shape) != 2 {
			continue
		}
		matrix, members := c.Family().FusedWith(w.Name)
		if members == nil {
			continue
		}
		if matrices[matrix] == nil {
			order = append(order, matrix)
		}
		matrices[matrix] = append(matrices[matrix], w)
	}
	for _, matrix := range slices.DeleteFunc(order, func(m string) bool { return len(matrices[m]) < 2 }) {
		f(matrices[matrix])
	}
}
