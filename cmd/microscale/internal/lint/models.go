package lint

import (
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
)

// modelRules are about architectures.
var modelRules = []Rule{
	{
		ID: "L24", Name: "mtp-missing", Severity: Warning, check: missingFurther,
		What:   "the configuration declares layers that predict further tokens, and the files have none",
		Why:    "speculative decoding fails or is off",
		Remedy: "`repair --source ORIGINAL`, which copies them",
		Source: "vllm#35548",
	},
	{
		ID: "L25", Name: "mtp-partial", Severity: Error, check: partlyFurther,
		explains: []string{"ignored-quantized", "unquantized-unlisted"},
		What:     "a module that predicts further tokens contradicts the ignore list",
		Why:      "the client builds it quantized, or reads its codes as values; often mtp.fc is missing on the list",
		Remedy:   "`repair`",
		Source:   "vllm#38832",
	},
	{
		ID: "L38", Name: "hf-moe-global", Severity: Error, Needs: Scalars,
		What:   "experts of compressed-tensors have global scales, MXFP8 or blocks of 128×128",
		Why:    "the client leaves out the global scale, takes bytes for numbers, or fails",
		Remedy: "choose mxfp4 or fp8-row, or convention deepseek",
		Source: "transformers#48371",
	},
	{
		ID: "L39", Name: "gguf-scale-unused", Severity: Error, Needs: Scalars,
		What:   "the graph of the architecture ignores global scales of NVFP4",
		Why:    "the results are NaN or wrong",
		Remedy: "choose mxfp4, or scales of blocks alone (`--profile ggml`)",
		Source: "llama.cpp#20506, and src/models of llama.cpp",
	},
	{
		ID: "L40", Name: "mlx-kv_b", Severity: Error,
		What:   "kv_b_proj is quantized in a format without biases",
		Why:    "the client divides it as it loads, and expects the biases of an affine format",
		Remedy: "exclude kv_b_proj",
		Source: "sanitize in models/deepseek_v3.py of mlx-lm 0.32",
	},
	{
		ID: "L41", Name: "mamba1", Severity: Error,
		What:   "projections of Mamba-1 are quantized",
		Why:    "the client builds them unquantized",
		Remedy: "exclude them",
		Source: "layers/mamba/mamba_mixer.py of vLLM 0.32",
	},
	{
		ID: "L43", Name: "transform-online", Severity: Error, clients: []string{"sglang", "llamacpp", "ollama"}, check: onlineTransforms,
		What:   "activations are transformed at run time",
		Why:    "the client does not do so, and multiplies rotated weights by plain inputs",
		Remedy: "quantize again without transforms at run time",
		Source: "transform_config of compressed-tensors 0.20, and the loaders of the clients",
	},
	{
		ID: "L44", Name: "mixed-sglang", Severity: Error,
		What:   "MIXED_PRECISION without NVFP4",
		Why:    "the client takes it for INT4 with FP8",
		Remedy: "choose nvfp4 for some weights, or one format",
		Source: "configs/model_config.py of SGLang 0.5.23",
	},
	{
		ID: "L52", Name: "model-dtype", Severity: Error,
		What:   "codes are decoded to BF16, and the model has another dtype",
		Why:    "the client multiplies two dtypes, and fails",
		Remedy: "quantize again, with the other weights in BF16",
		Source: "compressors of compressed-tensors 0.20",
	},
	{
		ID: "L53", Name: "experts-layout", Severity: Error,
		What:   "the client holds the experts of this model otherwise, and does not join or divide these",
		Why:    "it initializes them at random, or rejects the file",
		Remedy: "exclude the experts, or quantize them as the finding says",
		Source: "conversion_mapping.py of transformers 5.24, mlx_lm/models at 0.32.2",
	},
	{
		ID: "L54", Name: "initialized-weight", Severity: Error,
		What:   "a module whose weight the client initializes before it loads has packed codes",
		Why:    "it has no weight then, and the client fails",
		Remedy: "choose mxfp8 or fp8-row",
		Source: "_init_weights in transformers 5.24",
	},
	{
		ID: "L55", Name: "gpt-oss-experts", Severity: Error,
		What:   "gpt-oss in compressed-tensors, and no pattern of the ignore list matches its experts",
		Why:    "the client renames entries of the ignore list, and does not find the experts on it",
		Remedy: "choose convention gpt-oss",
		Source: "models/gpt_oss.py of vLLM 0.32",
	},
	{
		ID: "L56", Name: "partial-columns", Severity: Error, unread: true,
		What:   "the columns of a weight are no multiple of what the client needs",
		Why:    "the client fails",
		Remedy: "quantize again with another format, or exclude the weight",
		Source: "loaders of the clients (package client)",
	},
	{
		ID: "L57", Name: "mlx-global", Severity: Error,
		What:   "a module has a global scale in a convention whose modules have none",
		Why:    "the client rejects the file",
		Remedy: "quantize again",
		Source: "mlx.nn.Module.load_weights",
	},
}

// further reports whether a weight belongs to a module that predicts further tokens.
func (c *checker) further(w *checkpoint.Weight) bool {
	return slices.ContainsFunc(c.Family().Roles(w.Name, w.Shape), (*family.Role).PredictsFurther)
}

func missingFurther(c *checker) {
	if n := c.Family().Further(); n > 0 && c.Convention != nil && c.Source.Config != nil && !c.Source.Single &&
		!slices.ContainsFunc(c.Weights, c.further) {
		c.report("", "the configuration declares %d layers or modules that predict further tokens, and the files have none", n)
	}
}

func partlyFurther(c *checker) {
	for _, p := range c.Problems {
		w, ok := c.Lookup(p.Tensor)
		if !ok || !slices.Contains(c.rule.explains, p.Rule) || !c.further(w) {
			continue
		}
		if w.Quantized() {
			c.report(w.Name, "it predicts further tokens and is quantized, and it is on the ignore list")
		} else {
			c.report(w.Name, "it predicts further tokens and is not quantized, and it is not on the ignore list")
		}
	}
}

func onlineTransforms(c *checker) {
	if len(c.config.online) > 0 {
		c.report("", "transform_config transforms %s at run time, and the client does not", strings.Join(c.config.online, ", "))
	}
}
