package family

import (
	"slices"
	"strconv"
	"strings"
)

// fusedRows are the modules that engines fuse into one matrix. The fused
// matrix has one scheme and one global scale, and its parts have the same input. A row with types is
// that of these families alone, and comes before the rows that it extends. Sources: packed_modules_mapping
// and stacked_params_mapping of all models of vLLM 0.32 (V) and SGLang 0.5.23 (S), and the map
// of TensorRT-LLM (T, HfWeightMapper); the models in which they are, unless there are many.
var fusedRows = []struct {
	parts []string
	types []string
}{
	{[]string{"q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj"},
		[]string{"kimi_linear", "kimi_k3", "glm5_next", "glm5_next_text", "bailing_moe_v3", "bailing_hybrid"}}, // S
	{[]string{"f_b_proj", "g_b_proj"}, nil},                                          // S kimi_linear, kimi_k3, glm5_next, bailing_moe_v3
	{[]string{"q_proj", "k_proj", "v_proj", "g_proj"}, []string{"olmo_hybrid"}},      // V; S kimi_k3
	{[]string{"q_proj", "k_proj", "v_proj", "a_proj", "b_proj", "g_proj"}, jetTypes}, // S jet_nemotron
	{[]string{"q_proj", "k_proj", "v_proj"}, nil},                                    // V, S, T; kv_proj without q_proj: V, S whisper
	{[]string{"wq", "wk", "wv"}, nil},                                                // V molmo2
	{[]string{"query", "key", "value"}, nil},                                         // V, S bert, roberta
	{[]string{"query_net", "key_net", "value_net"}, nil},                             // V cohere_asr
	{[]string{"q", "k", "v"}, nil},                                                   // V qwen2_5_omni_thinker; S qwen3_vl
	{[]string{"q_a_proj", "kv_a_proj_with_mqa"}, nil},                                // V, S, T deepseek_v2
	{[]string{"wq_a", "wkv_a_with_mqa"}, nil},                                        // the same in the names of DeepSeek's own files
	{[]string{"index_q_proj", "index_k_proj"}, nil},                                  // S minimax_m3
	{[]string{"w2", "w1"}, []string{"qwen"}},                                         // S qwen
	{[]string{"gate_proj", "up_proj"}, nil},                                          // V, S, T
	{[]string{"w1", "w3"}, nil},                                                      // V lfm2; S internlm2
	{[]string{"c_fc_0", "c_fc_1"}, nil},                                              // V, S exaone
	{[]string{"fc1", "fc3"}, nil},                                                    // V dots_ocr
	{[]string{"in_proj_qkv", "in_proj_z"}, nil},                                      // V, S qwen3_5
	{[]string{"in_proj_b", "in_proj_a"}, nil},                                        // V, S qwen3_5
}

var jetTypes = []string{"jet_nemotron"}

// Joined returns a name that the weights of one fused matrix share, and the index of the weight in it:
// the weight's own name and 0 if it is not part of one. Experts have separate matrices, because the
// parent's name contains their number.
func (m *Model) Joined(weight string) (matrix string, part int) {
	matrix, parts := m.FusedWith(weight)
	_, name := splitModule(strings.TrimSuffix(weight, weightSuffix))
	return matrix, max(0, slices.Index(parts, name))
}

// FusedWith is Joined with the names of all parts of the fused matrix; nil if the weight is not part of one.
func (m *Model) FusedWith(weight string) (matrix string, parts []string) {
	module, ok := strings.CutSuffix(weight, weightSuffix)
	if !ok {
		return weight, nil
	}
	parent, name := splitModule(module)
	for i, row := range fusedRows {
		if row.types != nil && !m.OfType(row.types...) {
			continue
		}
		if slices.Contains(row.parts, name) {
			return parent + "\x00" + strconv.Itoa(i), row.parts
		}
	}
	return weight, nil
}
