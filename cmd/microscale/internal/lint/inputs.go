package lint

import (
	"math"
	"regexp"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
)

// inputRules are about scales of activations and of the KV cache.
var inputRules = []Rule{
	{
		ID: "L05", Name: "input-scale-missing", Severity: Error,
		What:   "the configuration declares stored scales of activations, and a weight has none",
		Why:    "the client multiplies by 0 or by what memory holds: experts that calibration never reached give NaN",
		Remedy: "`repair`, or calibrate again",
		Source: "vllm#45212",
	},
	{
		ID: "L06", Name: "input-scale-bad", Severity: Error, Needs: Scalars, check: badInputs,
		What:   "a scale of activations is 0, negative, NaN or Inf",
		Why:    "the outputs of the layer are NaN or 0",
		Remedy: "`repair`, or calibrate again",
		Source: "vllm#45212",
	},
	{
		ID: "L07", Name: "input-set", Severity: Warning, Needs: Scalars, clients: engines, check: inputSets,
		What:   "scales of activations of a fused set differ",
		Why:    "the weights have the same inputs, and the client keeps the largest scale: the outputs of others are less accurate than measured",
		Remedy: "`repair`",
		Source: "vllm#47515",
	},
	{
		ID: "L26", Name: "kv-names", Severity: Error, check: cacheNames,
		What:   "a scale of the KV cache has a name that no client looks for (by its name and shape)",
		Why:    "vLLM 0.32 rejects the file, and others drop the scale and use 1",
		Remedy: "rename it: self_attn.k_scale in compressed-tensors, self_attn.k_proj.k_scale in modelopt",
		Source: "sglang#39942",
	},
	{
		ID: "L27", Name: "kv-scheme", Severity: Warning, check: cacheScheme,
		What:   "there are scales of the KV cache, and the configuration declares no quantized cache",
		Why:    "clients ignore the scales",
		Remedy: "add kv_cache_scheme (in hf_quant_config.json kv_cache_quant_algo), or omit the scales",
		Source: "sglang#35455",
	},
}

// input returns the number that a file has for the scale of activations of a weight. ok is false if there is none.
func (c *checker) input(w *checkpoint.Weight) (value float32, t string, ok bool) {
	part, ok := w.Part(checkpoint.Input)
	if !ok || !w.Quantized() || part.Elements() != 1 || c.err != nil {
		return 0, "", false
	}
	values, err := part.Shard.File.Floats(part.Name)
	if err != nil {
		c.err = err
		return 0, "", false
	}
	return values[0], part.Name, true
}

// valid reports whether a number can be a scale.
func valid(scale float32) bool { return scale > 0 && !math.IsInf(float64(scale), 0) }

func badInputs(c *checker) {
	for _, w := range c.Weights {
		if v, name, ok := c.input(w); ok && !valid(v) {
			c.report(name, "the scale of the activations is %g, and must be positive and finite", v)
		}
	}
}

func inputSets(c *checker) {
	c.sets(func(weights []*checkpoint.Weight) {
		var first float32
		var of string
		for _, w := range weights {
			v, name, ok := c.input(w)
			switch {
			case !ok || !valid(v):
			case of == "":
				first, of = v, name
			case v != first:
				c.report(name, "it is %g and %s is %g, and the client uses one for both", v, of, first)
			}
		}
	})
}

// The names of scales of the KV cache: what may be one, and those that clients map to their own (maybe_remap_kv_scale_name
// in model_loader/weight_utils.py and get_cache_scale of compressed-tensors in vLLM 0.32).
var (
	cacheLike  = regexp.MustCompile(`(^|[._])(k|v|kv|key|value)(_proj)?(_cache)?[._](output_)?scale$`)
	cacheKnown = regexp.MustCompile(`(^|\.)(self_attn|attn|attention|mixer|self_attention)\.((k|v|kv|qkv)_proj\.)?(k|v)_scale$|` +
		`\.kv_scale$|\.(k|v)_proj\.output_scale$`)
)

// cacheScales returns the tensors that by name, shape and dtype are scales of the KV cache.
func (c *checker) cacheScales() (names []string) {
	for _, t := range c.Source.Tensors() {
		_, dense := t.Dtype.Dense()
		if dense && t.Elements() == 1 && strings.HasSuffix(t.Name, "scale") && cacheLike.MatchString(t.Name) {
			names = append(names, t.Name)
		}
	}
	return names
}

func cacheNames(c *checker) {
	if c.Convention == nil {
		return
	}
	for _, name := range c.cacheScales() {
		if !cacheKnown.MatchString(name) {
			c.report(name, "by its name and shape it is a scale of the KV cache, and no client looks for that name")
		}
	}
}

func cacheScheme(c *checker) {
	if !compressedTensors.Is(c.Convention) && !modelOpt.Is(c.Convention) || c.config.cache {
		return
	}
	for _, name := range c.cacheScales() {
		if cacheKnown.MatchString(name) {
			c.report("", "%s is a scale of the KV cache, and the configuration declares no quantized cache", name)
			return
		}
	}
}
