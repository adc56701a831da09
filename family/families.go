package family

import (
	"fmt"
	"slices"
	"strings"
)

// A Family is a row of data about one kind of decoder: how its configuration is read, what its tensors
// are called, and what differs from Llama. Package decoder makes its plan of a row and a configuration.
type Family struct {
	Name  string
	Types []string // model_type of configurations, with that of wrappers such as multimodal models
	Class string   // in architectures of configurations; "" accepts any

	Defaults string   // of keys, a JSON object
	Keys     []string // that are read, apart from commonKeys
	Require  string   // values that keys must have if they are present, a JSON object

	Names Names

	// PlusOne: weights of norms are stored as differences from one.
	PlusOne bool
	// QueryNorm: what the norms of Q and K normalize.
	QueryNorm NormKind
	bias      biasRule
	Sinks     bool // attention has sinks
	window    windowRule
	// Interleaved: rotary embedding pairs neighboring elements.
	Interleaved bool
	// LocalRope: layers with a window have their own rotary embedding.
	LocalRope bool
	// EmbedRoot: embeddings are multiplied by the square root of the width.
	EmbedRoot bool
	// gate: the kind of the gated unit.
	gate gateKind
	// Experts: how tokens are routed. nil: the model is dense.
	Experts *Routing
	// Latent: attention has latent queries, keys and values.
	Latent bool
	// GGUF: how llama.cpp runs the family. nil: it does not, or it is not known.
	GGUF *GGUF
}

// Names are the tensors of a layer, after the prefix of the layer and without ".weight". Parts of one
// linear layer are in the order of its rows. "" and nil: the family has no such tensor.
type Names struct {
	QKV, GateUp                            []string
	Output, Down                           string
	AttentionInput, AttentionOutput        string // norms before and after
	MLPInput, MLPOutput                    string
	Router, Correction, Shared, SharedGate string
	ExpertParts                            []string // gate, up and down of an expert after "N."
	Experts                                string   // the module of all experts
	Stacked                                bool     // all experts are in two tensors, gate_up_proj and down_proj
}

// llamaNames are the names of most families.
var llamaNames = Names{
	QKV: []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, Output: "self_attn.o_proj",
	GateUp: []string{"mlp.gate_proj", "mlp.up_proj"}, Down: "mlp.down_proj",
	AttentionInput: "input_layernorm", MLPInput: "post_attention_layernorm",
}

// withExperts adds the names of experts whose modules are called as in Qwen's and DeepSeek's models.
func (n Names) withExperts(shared, sharedGate, correction string) Names {
	n.Router, n.Experts, n.ExpertParts = "mlp.gate", "mlp.experts", []string{"gate_proj", "up_proj", "down_proj"}
	n.Shared, n.SharedGate, n.Correction = shared, sharedGate, correction
	return n
}

// fused returns the names with Q, K and V in one tensor if qkv is true, and gate and up in one.
func (n Names) fused(qkv bool) Names {
	if qkv {
		n.QKV = []string{"self_attn.qkv_proj"}
	}
	n.GateUp = []string{"mlp.gate_up_proj"}
	return n
}

// norms returns the names with other norms.
func (n Names) norms(attentionInput, attentionOutput, mlpInput, mlpOutput string) Names {
	n.AttentionInput, n.AttentionOutput, n.MLPInput, n.MLPOutput = attentionInput, attentionOutput, mlpInput, mlpOutput
	return n
}

// A NormKind is what the norms of Q and K normalize.
type NormKind string

const (
	NoNorm    NormKind = ""
	HeadNorm  NormKind = "head"  // each head
	WholeNorm NormKind = "whole" // all heads of a token together
)

// A biasRule is which linear layers of attention have biases.
type biasRule int

const (
	biasByKey      biasRule = iota // all if attention_bias is true
	biasQKV                        // those of Q, K and V
	biasQKVByKey                   // those of Q, K and V if attention_bias is true
	biasEverywhere                 // all, and router and experts
)

// BiasByKey reports whether attention_bias of the configuration decides which linear layers of attention have biases.
func (f *Family) BiasByKey() bool { return f.bias == biasByKey || f.bias == biasQKVByKey }

// RouterBias reports whether routers have biases.
func (f *Family) RouterBias() bool { return f.bias == biasEverywhere }

// A windowRule is which layers have windows if layer_types does not say so.
type windowRule struct {
	kind   windowKind
	period int // of windowPattern: every period-th layer has no window
}

// WindowPeriod returns the period of layers without a window, the others of which have one; 0 if no period decides.
func (f *Family) WindowPeriod() int { return f.window.period }

// A windowKind is how a family says which layers have windows.
type windowKind int

const (
	windowNever   windowKind = iota
	windowAlways             // if sliding_window has a value
	windowPattern            // by sliding_window_pattern or the period
	windowLate               // from max_window_layers on, if use_sliding_window is true
	windowUsed               // all, if use_sliding_window is true
)

// A gateKind is an activation and the order of gate and up.
type gateKind int

const (
	gateSiLU gateKind = iota
	gateGELU
	gateClamped // clamped, interleaved and with 1 added to up, as in gpt-oss
)

// GELU reports whether the activation of the gated unit is GELU, and not SiLU.
func (f *Family) GELU() bool { return f.gate == gateGELU }

// Clamped reports whether the gated unit is that of gpt-oss: clamped, interleaved and with 1 added to up.
func (f *Family) Clamped() bool { return f.gate == gateClamped }

// A Routing is how a layer chooses experts for a token.
type Routing struct {
	Score     ScoreKind
	Normalize bool // the weights of the chosen experts sum to one if norm_topk_prob is not in the configuration
	Width     bool // the width of experts is moe_intermediate_size, not intermediate_size
}

// A ScoreKind is how the scores of experts are computed.
type ScoreKind string

const (
	ScoreSoftmax ScoreKind = "softmax"           // over all experts
	ScoreChosen  ScoreKind = "softmax of chosen" // over the chosen experts
	ScoreSigmoid ScoreKind = "sigmoid"           // choice by groups and with a correction
)

// commonKeys are read for every family.
var commonKeys = []string{
	"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
	"max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
	"attention_bias", "hidden_act", "hidden_activation", "partial_rotary_factor", "microscale",
}

// Keys of features that several families share.
var (
	windowKeys  = []string{"sliding_window", "layer_types"}
	qwenKeys    = []string{"sliding_window", "layer_types", "use_sliding_window", "max_window_layers"}
	expertKeys  = []string{"num_experts", "num_local_experts", "num_experts_per_tok"}
	qwenExperts = slices.Concat(qwenKeys, expertKeys, []string{"moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
		"mlp_only_layers"})
	gemmaKeys = slices.Concat(windowKeys, []string{"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
		"sliding_window_size"})
)

// families are the known decoders. Sources: the modeling and configuration files of transformers 5.23
// (src/transformers/models), with which interop compares each row.
var families = []Family{
	{
		Name: "llama", Types: []string{"llama"}, Class: "LlamaForCausalLM",
		Defaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
			"max_position_embeddings": 2048, "rms_norm_eps": 1e-06}`,
		Keys:    []string{"mlp_bias", "rope_interleaved"},
		Require: `{"hidden_act": "silu", "rope_interleaved": false}`,
		Names:   llamaNames,
		GGUF:    &GGUF{Name: "llama", Permuted: true},
	},
	{
		Name: "mistral", Types: []string{"mistral"}, Class: "MistralForCausalLM",
		Defaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "sliding_window": 4096}`,
		Keys: windowKeys, Require: `{"hidden_act": "silu", "attention_bias": false}`,
		Names: llamaNames, window: windowRule{kind: windowAlways},
		GGUF: &GGUF{Name: "llama", Permuted: true},
	},
	{
		Name: "smollm3", Types: []string{"smollm3"}, Class: "SmolLM3ForCausalLM",
		Defaults: `{"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
			"num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "tie_word_embeddings": true,
			"no_rope_layer_interval": 4, "rope_theta": 2000000}`,
		Keys:    slices.Concat(qwenKeys, []string{"mlp_bias", "no_rope_layers", "no_rope_layer_interval"}),
		Require: `{"hidden_act": "silu", "use_sliding_window": false}`,
		Names:   llamaNames,
		GGUF:    &GGUF{Name: "smollm3", Permuted: true},
	},
	{
		Name: "qwen2", Types: []string{"qwen2"}, Class: "Qwen2ForCausalLM",
		Defaults: `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "sliding_window": 4096,
			"max_window_layers": 28}`,
		Keys: qwenKeys, Require: `{"hidden_act": "silu", "use_mrope": false}`,
		Names: llamaNames, bias: biasQKV, window: windowRule{kind: windowLate},
		GGUF: &GGUF{Name: "qwen2"},
	},
	{
		Name: "qwen3", Types: []string{"qwen3"}, Class: "Qwen3ForCausalLM",
		Defaults: `{"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "sliding_window": 4096,
			"max_window_layers": 28}`,
		Keys: qwenKeys, Require: `{"hidden_act": "silu"}`,
		Names: llamaNames, QueryNorm: HeadNorm, window: windowRule{kind: windowLate},
		GGUF: &GGUF{Name: "qwen3"},
	},
	{
		Name: "qwen2_moe", Types: []string{"qwen2_moe"}, Class: "Qwen2MoeForCausalLM",
		Defaults: `{"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
			"num_key_value_heads": 16, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "sliding_window": 4096,
			"max_window_layers": 28, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
			"shared_expert_intermediate_size": 5632}`,
		Keys:    slices.Concat(qwenExperts, []string{"shared_expert_intermediate_size", "qkv_bias"}),
		Require: `{"hidden_act": "silu", "qkv_bias": true}`,
		Names:   llamaNames.withExperts("mlp.shared_expert", "mlp.shared_expert_gate", ""), bias: biasQKV, window: windowRule{kind: windowLate},
		Experts: &Routing{Score: ScoreSoftmax, Width: true},
		GGUF:    &GGUF{Name: "qwen2moe", Experts: &qwen2Experts},
	},
	{
		Name: "qwen3_moe", Types: []string{"qwen3_moe"}, Class: "Qwen3MoeForCausalLM",
		Defaults: `{"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_attention_heads": 32,
			"num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "sliding_window": 4096,
			"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}`,
		Keys: qwenExperts, Require: `{"hidden_act": "silu"}`,
		Names: llamaNames.withExperts("", "", ""), QueryNorm: HeadNorm, window: windowRule{kind: windowUsed},
		Experts: &Routing{Score: ScoreSoftmax, Width: true},
		GGUF:    &GGUF{Name: "qwen3moe", Experts: &qwen3Experts},
	},
	{
		Name: "mixtral", Types: []string{"mixtral"}, Class: "MixtralForCausalLM",
		Defaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "num_local_experts": 8,
			"num_experts_per_tok": 2, "rope_theta": 1000000}`,
		Keys: slices.Concat(windowKeys, expertKeys), Require: `{"hidden_act": "silu", "attention_bias": false}`,
		Names: func() Names {
			n := llamaNames
			n.Router, n.Experts, n.ExpertParts = "block_sparse_moe.gate", "block_sparse_moe.experts", []string{"w1", "w3", "w2"}
			return n
		}(),
		window: windowRule{kind: windowAlways}, Experts: &Routing{Score: ScoreSoftmax, Normalize: true},
		GGUF: &GGUF{Name: "llama", Permuted: true, Marker: "expert_count", Experts: &mixtralExperts},
	},
	{
		Name: "gemma2", Types: []string{"gemma2"}, Class: "Gemma2ForCausalLM",
		Defaults: `{"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
			"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-06,
			"tie_word_embeddings": true, "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50,
			"final_logit_softcapping": 30}`,
		Keys: gemmaKeys, Require: `{"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": false}`,
		Names:   llamaNames.norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
		PlusOne: true, window: windowRule{windowPattern, 2}, EmbedRoot: true, gate: gateGELU,
		GGUF: &GGUF{Name: "gemma2", Modules: gemmaModules, Scaled: 46, Keys: []GGUFKey{
			{"attn_logit_softcapping", "attn_logit_softcapping", false}, {"final_logit_softcapping", "final_logit_softcapping", false}, ggufWindow,
		}},
	},
	{
		Name: "gemma3", Types: []string{"gemma3_text", "gemma3"}, Class: "Gemma3ForCausalLM",
		Defaults: `{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
			"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-06,
			"tie_word_embeddings": true, "sliding_window": 4096, "query_pre_attn_scalar": 256, "rope_theta": 1000000,
			"rope_local_base_freq": 10000}`,
		Keys:    slices.Concat(gemmaKeys, []string{"sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq"}),
		Require: `{"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": false}`,
		Names:   llamaNames.norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
		PlusOne: true, QueryNorm: HeadNorm, window: windowRule{windowPattern, 6}, LocalRope: true, EmbedRoot: true, gate: gateGELU,
		GGUF: &GGUF{Name: "gemma3", Modules: gemmaModules, Scaled: 62, Keys: []GGUFKey{
			ggufWindow,
		}},
	},
	{
		Name: "phi3", Types: []string{"phi3"}, Class: "Phi3ForCausalLM",
		Defaults: `{"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
			"max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "original_max_position_embeddings": 4096}`,
		// transformers ignores the last two
		Keys:    []string{"sliding_window", "original_max_position_embeddings", "full_attn_mod", "interpolate_factor"},
		Require: `{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "lm_head_bias": false}`,
		Names:   llamaNames.fused(true), window: windowRule{kind: windowAlways},
		GGUF: &GGUF{Name: "phi3", Partial: true, LongRope: true, Modules: [][2]string{
			{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"},
		}},
	},
	{
		Name: "granite", Types: []string{"granite"}, Class: "GraniteForCausalLM",
		Defaults: `{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
			"max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "embedding_multiplier": 1, "residual_multiplier": 1,
			"attention_multiplier": 1, "logits_scaling": 1}`,
		Keys:    []string{"mlp_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"},
		Require: `{"hidden_act": "silu"}`,
		Names:   llamaNames,
		GGUF: &GGUF{Name: "granite", Permuted: true, Keys: []GGUFKey{
			{"embedding_scale", "embedding_multiplier", false}, {"residual_scale", "residual_multiplier", false},
			{"attention.scale", "attention_multiplier", false}, {"logit_scale", "logits_scaling", false},
		}},
	},
	{
		Name: "olmo2", Types: []string{"olmo2"}, Class: "Olmo2ForCausalLM",
		Defaults: `{"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
			"max_position_embeddings": 2048, "rms_norm_eps": 1e-05}`,
		Require: `{"hidden_act": "silu"}`,
		Names:   llamaNames.norms("", "post_attention_layernorm", "", "post_feedforward_layernorm"), QueryNorm: WholeNorm,
		GGUF: &GGUF{Name: "olmo2", Modules: [][2]string{
			{"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
		}},
	},
	{
		Name: "olmo3", Types: []string{"olmo3"}, Class: "Olmo3ForCausalLM",
		Defaults: `{"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
			"max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "sliding_window": 4096, "rope_theta": 500000}`,
		Keys: windowKeys, Require: `{"hidden_act": "silu"}`,
		Names:     llamaNames.norms("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
		QueryNorm: WholeNorm, window: windowRule{windowPattern, 4}, LocalRope: true,
		GGUF: &GGUF{Name: "olmo2", Marker: "attention.sliding_window", Listed: true, Keys: []GGUFKey{ggufWindow}, Modules: [][2]string{
			{"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
		}},
	},
	{
		Name: "gpt-oss", Types: []string{"gpt_oss"}, Class: "GptOssForCausalLM",
		Defaults: `{"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
			"num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "sliding_window": 128,
			"num_local_experts": 128, "num_experts_per_tok": 4, "attention_bias": true, "rope_theta": 150000}`,
		Keys:    slices.Concat(windowKeys, expertKeys, []string{"swiglu_limit", "swiglu_alpha", "experts_per_token", "initial_context_length"}),
		Require: `{"hidden_act": "silu", "attention_bias": true, "swiglu_alpha": 1.702, "swiglu_limit": 7}`,
		Names: func() Names {
			n := llamaNames
			n.Router, n.Experts, n.Stacked = "mlp.router", "mlp.experts", true
			return n
		}(),
		bias: biasEverywhere, Sinks: true, window: windowRule{windowPattern, 2}, gate: gateClamped, Experts: &Routing{Score: ScoreChosen},
		GGUF: &GGUF{Name: "gpt-oss", Modules: gptOSSModules, Tensors: gptOSSTensors, Joined: gptOSSJoined, Experts: &gptOSSExperts,
			Unrounded: true,
			Constants: map[string]float64{"swiglu_limit": 7, "swiglu_alpha": 1.702}, Keys: []GGUFKey{ggufWindow}},
	},
	{
		Name: "glm4", Types: []string{"glm4"}, Class: "Glm4ForCausalLM",
		Defaults: `{"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
			"num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-07,
			"attention_bias": true, "partial_rotary_factor": 0.5}`,
		Require: `{"hidden_act": "silu"}`,
		Names:   llamaNames.norms("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm").fused(false),
		bias:    biasQKVByKey, Interleaved: true,
		GGUF: &GGUF{Name: "glm4", Partial: true, Modules: [][2]string{
			{"post_self_attn_layernorm", "post_attention_norm"}, {"post_attention_layernorm", "ffn_norm"}, {"post_mlp_layernorm", "post_ffw_norm"},
			{"mlp.gate_up_proj", "ffn_up"},
		}},
	},
	{
		Name: "deepseek-v3", Types: []string{"deepseek_v3"}, Class: "DeepseekV3ForCausalLM",
		Defaults: `{"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
			"num_key_value_heads": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "num_experts_per_tok": 8,
			"moe_intermediate_size": 2048, "norm_topk_prob": true, "n_routed_experts": 256, "n_shared_experts": 1, "n_group": 8,
			"topk_group": 4, "routed_scaling_factor": 2.5, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
			"qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3}`,
		Keys: []string{
			"n_routed_experts", "n_shared_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
			"first_k_dense_replace",
			"n_group", "topk_group", "routed_scaling_factor", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim",
			"v_head_dim",
		},
		Require: `{"hidden_act": "silu", "rope_interleave": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}`,
		Names:   llamaNames.withExperts("mlp.shared_experts", "", "mlp.gate.e_score_correction_bias"), Interleaved: true, Latent: true,
		Experts: &Routing{Score: ScoreSigmoid, Normalize: true, Width: true},
		GGUF: &GGUF{Name: "deepseek2", Modules: deepSeekModules, Tensors: deepSeekTensors, Experts: &deepSeekExperts, Unscaled: deepSeekUnscaled,
			Constants: map[string]float64{"rms_norm_eps": LatentEpsilon, "moe_layer_freq": 1}, Keys: deepSeekKeys},
	},
}

// harmlessKeys change nothing that a decoder computes.
var harmlessKeys = []string{
	"architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path", "auto_map", "torch_dtype", "dtype",
	"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id", "use_cache",
	"cache_implementation",
	"initializer_range", "initializer_factor", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout",
	"pretraining_tp",
	"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "input_jitter_noise", "aux_loss_alpha", "seq_aux",
	"attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "use_flash_attn", "return_dict", "output_attentions",
	"output_hidden_states",
	"is_encoder_decoder", "is_llama_config", "id2label", "label2id", "task_specific_params", "problem_type", "chunk_size_feed_forward",
	"transformers.js_config", "unsloth_fixed", "unsloth_version", "use_mamba_kernels", "tokenizer_class", "prefix", "finetuning_task",
	"ep_size", "num_nextn_predict_layers", "layer_norm_eps", "model_name",
}

// All returns the known decoders in their order.
func All() []Family { return slices.Clone(families) }

// Lookup returns the decoder with a name, such as "llama"; nil if there is none.
func Lookup(name string) *Family {
	if i := slices.IndexFunc(families, func(f Family) bool { return f.Name == name }); i >= 0 {
		return &All()[i]
	}
	return nil
}

// familyOf returns the row for a model_type.
func familyOf(modelType string, classes []string) (*Family, error) {
	var types []string
	for i := range families {
		f := &families[i]
		if slices.Contains(f.Types, modelType) {
			if len(classes) > 0 && !slices.Contains(classes, f.Class) {
				return nil, Unsupported(fmt.Errorf("config.json: architecture %s is not supported: want %s", strings.Join(classes, ", "), f.Class))
			}
			return f, nil
		}
		types = append(types, f.Types...)
	}
	return nil, Unsupported(fmt.Errorf("config.json: model_type %q is not supported: want one of %s", modelType, strings.Join(types, ", ")))
}
