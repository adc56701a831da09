package family

import "slices"

// scaledGraphs lists the architectures whose graphs in llama.cpp apply the global scale of NVFP4 in all linear layers. Source:
// src/models of llama.cpp as vendored by llama-cpp-python 0.3.36, of 1 October 2026. Other architectures get no global scale.
var scaledGraphs = []string{"llama", "mistral3", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "nemotron_h_moe", "cohere2", "cohere2moe",
	"deepseek32", "glm-dsa", "mellum", "nanbeige"}

// unscaledGraphs lists the architectures whose graphs in llama.cpp apply the global scale of
// NVFP4 in some linear layers only, or in none. The loader reads every X.scale, but the other
// layers compute with block scales alone, so their results are too large by the inverse of the
// global scale. Source: src/models at the version in llama-cpp-python 0.3.36; tests in interop
// run the architectures that package llamacpp writes.
var unscaledGraphs = []struct {
	name       string
	modelTypes []string // of the checkpoints that its converter reads
}{
	{"qwen2", []string{"qwen2"}},
	{"qwen2moe", []string{"qwen2_moe"}},
	{"qwen3vl", []string{"qwen3_vl", "qwen3_vl_text"}},
	{"qwen3vlmoe", []string{"qwen3_vl_moe", "qwen3_vl_moe_text"}},
	{"gemma2", []string{"gemma2"}},
	{"gemma3", []string{"gemma3", "gemma3_text"}},
	{"phi3", []string{"phi3"}},
	{"glm4", []string{"glm4"}},
	{"glm4moe", []string{"glm4_moe"}},
	{"deepseek2", []string{"deepseek_v2", "deepseek_v3", "kimi_k2"}},
	{"granite", []string{"granite"}},
	{"olmo2", []string{"olmo2", "olmo3"}},
	{"gpt-oss", []string{"gpt_oss"}},
	{"llama4", []string{"llama4", "llama4_text"}},
	{"minimax-m2", []string{"minimax_m2"}},
	{"smollm3", []string{"smollm3"}},
	{"falcon-h1", []string{"falcon_h1"}},
}

// UnscaledGraph reports whether the graph of an architecture in llama.cpp ignores global scales
// of NVFP4, or is not known to apply them.
func UnscaledGraph(architecture string) bool { return !slices.Contains(scaledGraphs, architecture) }

// UnscaledGraph returns the architecture in llama.cpp of the model, whose general.architecture is given if it is a
// GGUF file, if its graph ignores global scales of NVFP4; "" otherwise.
func (m *Model) UnscaledGraph(architecture string) string {
	for _, g := range unscaledGraphs {
		if g.name == architecture || m.OfType(g.modelTypes...) {
			return g.name
		}
	}
	return ""
}
