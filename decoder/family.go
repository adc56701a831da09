package decoder

import (
	"fmt"
	"slices"
	"strings"
)

// A family is a row of data about one kind of decoder: how its configuration is read, what its tensors
// are called, and what differs from Llama. compile makes a Plan of a row and a configuration.
type family struct {
	name  string
	types []string // model_type of configurations, with that of wrappers such as multimodal models
	class string   // in architectures of configurations; "" accepts any

	defaults string   // of keys, a JSON object
	keys     []string // that are read, apart from commonKeys
	require  string   // values that keys must have if they are present, a JSON object

	names names

	// plusOne: weights of norms are stored as differences from one.
	plusOne bool
	// queryNorm: what the norms of Q and K normalize.
	queryNorm normKind
	bias      biasRule
	sinks     bool // attention has sinks
	window    windowRule
	// interleaved: rotary embedding pairs neighboring elements.
	interleaved bool
	// localRope: layers with a window have their own rotary embedding.
	localRope bool
	// embedRoot: embeddings are multiplied by the square root of the width.
	embedRoot bool
	// gate is the kind of the gated unit.
	gate gateKind
	// experts: how tokens are routed. nil: the model is dense.
	experts *routing
	// latent: attention has latent queries, keys and values.
	latent bool
}

// names are the tensors of a layer, after the prefix of the layer and without ".weight". Parts of one
// linear layer are in the order of its rows. "" and nil: the family has no such tensor.
type names struct {
	qkv, gateUp                            []string
	output, down                           string
	attentionInput, attentionOutput        string // norms before and after
	mlpInput, mlpOutput                    string
	router, correction, shared, sharedGate string
	expertParts                            []string // gate, up and down of an expert after "N."
	experts                                string   // the module of all experts
	stacked                                bool     // all experts are in two tensors, gate_up_proj and down_proj
}

// llamaNames are the names of most families.
var llamaNames = names{
	qkv: []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, output: "self_attn.o_proj",
	gateUp: []string{"mlp.gate_proj", "mlp.up_proj"}, down: "mlp.down_proj",
	attentionInput: "input_layernorm", mlpInput: "post_attention_layernorm",
}

// withExperts adds the names of experts whose modules are called as in Qwen's and DeepSeek's models.
func (n names) withExperts(shared, sharedGate, correction string) names {
	n.router, n.experts, n.expertParts = "mlp.gate", "mlp.experts", []string{"gate_proj", "up_proj", "down_proj"}
	n.shared, n.sharedGate, n.correction = shared, sharedGate, correction
	return n
}

// fused returns the names with Q, K and V in one tensor if qkv is true, and gate and up in one.
func (n names) fused(qkv bool) names {
	if qkv {
		n.qkv = []string{"self_attn.qkv_proj"}
	}
	n.gateUp = []string{"mlp.gate_up_proj"}
	return n
}

// norms returns the names with other norms.
func (n names) norms(attentionInput, attentionOutput, mlpInput, mlpOutput string) names {
	n.attentionInput, n.attentionOutput, n.mlpInput, n.mlpOutput = attentionInput, attentionOutput, mlpInput, mlpOutput
	return n
}

// A normKind is what the norms of Q and K normalize.
type normKind string

const (
	noNorm    normKind = ""
	headNorm  normKind = "head"  // each head
	wholeNorm normKind = "whole" // all heads of a token together
)

// A biasRule is which linear layers of attention have biases.
type biasRule int

const (
	biasByKey      biasRule = iota // all if attention_bias is true
	biasQKV                        // those of Q, K and V
	biasQKVByKey                   // those of Q, K and V if attention_bias is true
	biasEverywhere                 // all, and router and experts
)

// A windowRule is which layers have windows if layer_types does not say so.
type windowRule struct {
	kind   windowKind
	period int // of windowPattern: every period-th layer has no window
}

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

// A routing is how a layer chooses experts for a token.
type routing struct {
	score     scoreKind
	normalize bool // the weights of the chosen experts sum to one if norm_topk_prob is not in the configuration
	width     bool // the width of experts is moe_intermediate_size, not intermediate_size
}

type scoreKind string

const (
	scoreSoftmax scoreKind = "softmax"           // over all experts
	scoreChosen  scoreKind = "softmax of chosen" // over the chosen experts
	scoreSigmoid scoreKind = "sigmoid"           // choice by groups and with a correction
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
	qwenExperts = slices.Concat(qwenKeys, expertKeys, []string{"moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"})
	gemmaKeys   = slices.Concat(windowKeys, []string{"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "sliding_window_size"})
)

// families are the known decoders. Sources: the modeling and configuration files of transformers 5.23
// (src/transformers/models), with which interop compares each row.
var families = []family{
	{
		name: "llama", types: []string{"llama"}, class: "LlamaForCausalLM",
		keys:    []string{"mlp_bias", "rope_interleaved"},
		require: `{"hidden_act": "silu", "rope_interleaved": false}`,
		names:   llamaNames,
	},
	{
		name: "mistral", types: []string{"mistral"}, class: "MistralForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6}`, keys: windowKeys, require: `{"hidden_act": "silu", "attention_bias": false}`,
		names: llamaNames, window: windowRule{kind: windowAlways},
	},
	{
		name: "smollm3", types: []string{"smollm3"}, class: "SmolLM3ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "rope_theta": 2e6, "no_rope_layer_interval": 4}`,
		keys:     slices.Concat(qwenKeys, []string{"mlp_bias", "no_rope_layers", "no_rope_layer_interval"}),
		require:  `{"hidden_act": "silu", "use_sliding_window": false}`,
		names:    llamaNames,
	},
	{
		name: "qwen2", types: []string{"qwen2"}, class: "Qwen2ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "max_window_layers": 28}`, keys: qwenKeys, require: `{"hidden_act": "silu", "use_mrope": false}`,
		names: llamaNames, bias: biasQKV, window: windowRule{kind: windowLate},
	},
	{
		name: "qwen3", types: []string{"qwen3"}, class: "Qwen3ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "head_dim": 128, "max_window_layers": 28}`, keys: qwenKeys, require: `{"hidden_act": "silu"}`,
		names: llamaNames, queryNorm: headNorm, window: windowRule{kind: windowLate},
	},
	{
		name: "qwen2_moe", types: []string{"qwen2_moe"}, class: "Qwen2MoeForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "max_window_layers": 28}`,
		keys:     slices.Concat(qwenExperts, []string{"shared_expert_intermediate_size", "qkv_bias"}), require: `{"hidden_act": "silu", "qkv_bias": true}`,
		names: llamaNames.withExperts("mlp.shared_expert", "mlp.shared_expert_gate", ""), bias: biasQKV, window: windowRule{kind: windowLate},
		experts: &routing{score: scoreSoftmax, width: true},
	},
	{
		name: "qwen3_moe", types: []string{"qwen3_moe"}, class: "Qwen3MoeForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6}`, keys: qwenExperts, require: `{"hidden_act": "silu"}`,
		names: llamaNames.withExperts("", "", ""), queryNorm: headNorm, window: windowRule{kind: windowUsed},
		experts: &routing{score: scoreSoftmax, width: true},
	},
	{
		name: "mixtral", types: []string{"mixtral"}, class: "MixtralForCausalLM",
		defaults: `{"rope_theta": 1e6}`, keys: slices.Concat(windowKeys, expertKeys), require: `{"hidden_act": "silu", "attention_bias": false}`,
		names: func() names {
			n := llamaNames
			n.router, n.experts, n.expertParts = "block_sparse_moe.gate", "block_sparse_moe.experts", []string{"w1", "w3", "w2"}
			return n
		}(),
		window: windowRule{kind: windowAlways}, experts: &routing{score: scoreSoftmax, normalize: true},
	},
	{
		name: "gemma2", types: []string{"gemma2"}, class: "Gemma2ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
			"attn_logit_softcapping": 50, "final_logit_softcapping": 30}`,
		keys: gemmaKeys, require: `{"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": false}`,
		names:   llamaNames.norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
		plusOne: true, window: windowRule{windowPattern, 2}, embedRoot: true, gate: gateGELU,
	},
	{
		name: "gemma3", types: []string{"gemma3_text", "gemma3"}, class: "Gemma3ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "tie_word_embeddings": true, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
			"rope_theta": 1e6, "rope_local_base_freq": 1e4}`,
		keys:    slices.Concat(gemmaKeys, []string{"sliding_window_pattern", "_sliding_window_pattern", "rope_local_base_freq"}),
		require: `{"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": false}`,
		names:   llamaNames.norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
		plusOne: true, queryNorm: headNorm, window: windowRule{windowPattern, 6}, localRope: true, embedRoot: true, gate: gateGELU,
	},
	{
		name: "phi3", types: []string{"phi3"}, class: "Phi3ForCausalLM",
		keys: []string{"sliding_window", "original_max_position_embeddings"}, require: `{"hidden_act": "silu", "attention_bias": false}`,
		names: llamaNames.fused(true), window: windowRule{kind: windowAlways},
	},
	{
		name: "granite", types: []string{"granite"}, class: "GraniteForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6}`,
		keys:     []string{"mlp_bias", "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}, require: `{"hidden_act": "silu"}`,
		names: llamaNames,
	},
	{
		name: "olmo2", types: []string{"olmo2"}, class: "Olmo2ForCausalLM",
		require: `{"hidden_act": "silu"}`,
		names:   llamaNames.norms("", "post_attention_layernorm", "", "post_feedforward_layernorm"), queryNorm: wholeNorm,
	},
	{
		name: "olmo3", types: []string{"olmo3"}, class: "Olmo3ForCausalLM",
		defaults: `{"sliding_window": 4096, "rope_theta": 5e5}`, keys: windowKeys, require: `{"hidden_act": "silu"}`,
		names:     llamaNames.norms("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
		queryNorm: wholeNorm, window: windowRule{windowPattern, 4}, localRope: true,
	},
	{
		name: "gpt-oss", types: []string{"gpt_oss"}, class: "GptOssForCausalLM",
		defaults: `{"rope_theta": 150000, "head_dim": 64, "sliding_window": 128}`,
		keys:     slices.Concat(windowKeys, expertKeys, []string{"swiglu_limit", "swiglu_alpha", "experts_per_token", "initial_context_length"}),
		require:  `{"hidden_act": "silu", "attention_bias": true, "swiglu_alpha": 1.702, "swiglu_limit": 7}`,
		names: func() names {
			n := llamaNames
			n.router, n.experts, n.stacked = "mlp.router", "mlp.experts", true
			return n
		}(),
		bias: biasEverywhere, sinks: true, window: windowRule{windowPattern, 2}, gate: gateClamped, experts: &routing{score: scoreChosen},
	},
	{
		name: "glm4", types: []string{"glm4"}, class: "Glm4ForCausalLM",
		defaults: `{"head_dim": 128, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7}`, require: `{"hidden_act": "silu"}`,
		names: llamaNames.norms("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm").fused(false),
		bias:  biasQKVByKey, interleaved: true,
	},
	{
		name: "deepseek-v3", types: []string{"deepseek_v3"}, class: "DeepseekV3ForCausalLM",
		defaults: `{"rms_norm_eps": 1e-6, "first_k_dense_replace": 3, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
			"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}`,
		keys: []string{
			"n_routed_experts", "n_shared_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "first_k_dense_replace",
			"n_group", "topk_group", "routed_scaling_factor", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim", "v_head_dim",
		},
		require: `{"hidden_act": "silu", "rope_interleave": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}`,
		names:   llamaNames.withExperts("mlp.shared_experts", "", "mlp.gate.e_score_correction_bias"), interleaved: true, latent: true,
		experts: &routing{score: scoreSigmoid, normalize: true, width: true},
	},
}

// harmlessKeys change nothing that a decoder computes.
var harmlessKeys = []string{
	"architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path", "auto_map", "torch_dtype", "dtype",
	"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id", "use_cache", "cache_implementation",
	"initializer_range", "initializer_factor", "attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout", "pretraining_tp",
	"output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "input_jitter_noise", "aux_loss_alpha", "seq_aux",
	"attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "use_flash_attn", "return_dict", "output_attentions", "output_hidden_states",
	"is_encoder_decoder", "is_llama_config", "id2label", "label2id", "task_specific_params", "problem_type", "chunk_size_feed_forward",
	"transformers.js_config", "unsloth_fixed", "unsloth_version", "use_mamba_kernels", "tokenizer_class", "prefix", "finetuning_task",
	"ep_size", "num_nextn_predict_layers", "layer_norm_eps", "model_name",
}

// familyOf returns the row for a model_type.
func familyOf(modelType string, classes []string) (*family, error) {
	var types []string
	for i := range families {
		f := &families[i]
		if slices.Contains(f.types, modelType) {
			if len(classes) > 0 && !slices.Contains(classes, f.class) {
				return nil, unsupported{fmt.Errorf("config.json: architecture %s is not supported: want %s", strings.Join(classes, ", "), f.class)}
			}
			return f, nil
		}
		types = append(types, f.types...)
	}
	return nil, unsupported{fmt.Errorf("config.json: model_type %q is not supported: want one of %s", modelType, strings.Join(types, ", "))}
}
