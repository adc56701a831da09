package family

// A GGUF is how models of a family are stored and run by llama.cpp, beside what the row of the family says.
// Sources: llama.cpp's converter (conversion/), its tables of names (src/llama-arch.cpp), its graphs
// (src/models/) and their calls of build_moe_ffn.
type GGUF struct {
	Name      string             // general.architecture
	Permuted  bool               // rows of queries and keys are in the order of interleaved rotation
	Experts   *GGUFExperts       // nil: the model is dense
	Modules   [][2]string        // modules of a layer and their names, which precede those of Llama
	Tensors   [][2]string        // names of tensors of a layer, whose suffixes differ in GGUF
	Joined    []GGUFJoined       // tensors that are two in GGUF
	Constants map[string]float64 // keys of config.json, and the values with which llama.cpp runs the model
	Keys      []GGUFKey          // metadata beside that of Llama
	Partial   bool               // a part of each head may be rotated
	Listed    bool               // the file lists the layers with windows, which the family's pattern has if config.json does not
	Unrounded bool               // the bounds of YaRN are not rounded in the checkpoint (truncate is false)
	Unscaled  []string           // modules whose global scales llama.cpp does not read
	LongRope  bool               // the file may have the divisors of LongRoPE
	// Scaled: scores are divided by the root of head_dim or, in the model with that number of layers,
	// of hidden_size / num_attention_heads. 0: the configuration has no such scale.
	Scaled int
	Marker string // a metadata key that tells files of the class from others of the architecture; "": none
}

// A GGUFJoined is a tensor of a layer whose rows are alternately those of two tensors of a GGUF file. The
// rows of biases are single elements.
type GGUFJoined struct {
	Name  string
	Parts [2]string
}

// A GGUFKey is a number that config.json and the metadata have under different keys.
type GGUFKey struct {
	Metadata, Config string
	Integer          bool
}

// GGUFExperts is the layout of a mixture of experts in a layer. A checkpoint has separate matrices for each
// expert; llama.cpp stacks those of all experts in one tensor.
type GGUFExperts struct {
	Module     string      // followed by the number of the expert
	Parts      [][2]string // modules of an expert, and their stacked tensors
	Beside     [][2]string // other modules of the layer, like Modules of GGUF
	Routed     bool        // config.json has the keys of DeepSeek
	Fused      bool        // the checkpoint has all experts of a layer in one tensor, and their width as intermediate_size
	Configured bool        // config.json has the width, norm_topk_prob and the dense layers, as that of Qwen
	Shared     bool        // another expert gets all tokens
	Normalized bool        // llama.cpp normalizes the weights of the chosen experts to a sum of 1
}

// LatentEpsilon is the ε of the norms of latent vectors in transformers. llama.cpp has one for all norms.
const LatentEpsilon = 1e-6

// The modules that choose experts, in GGUF.
const (
	GGUFRouter       = "ffn_gate_inp"
	GGUFSharedRouter = "ffn_gate_inp_shexp"
)

// The names of gpt-oss: experts in one tensor, and tensors without suffixes.
var (
	gptOSSModules = [][2]string{{"post_attention_layernorm", "post_attention_norm"}}
	gptOSSTensors = [][2]string{
		{"self_attn.sinks", "attn_sinks.weight"},
		{"mlp.experts.down_proj", "ffn_down_exps.weight"}, {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
		{"mlp.experts.gate_proj_bias", "ffn_gate_exps.bias"}, {"mlp.experts.up_proj_bias", "ffn_up_exps.bias"},
	}
	gptOSSJoined = []GGUFJoined{
		{"mlp.experts.gate_up_proj", [2]string{"ffn_gate_exps.weight", "ffn_up_exps.weight"}},
		{"mlp.experts.gate_up_proj_bias", [2]string{"ffn_gate_exps.bias", "ffn_up_exps.bias"}},
	}
)

// The modules of layers with norms before and after attention and MLP.
var gemmaModules = [][2]string{
	{"post_attention_layernorm", "post_attention_norm"}, {"pre_feedforward_layernorm", "ffn_norm"},
	{"post_feedforward_layernorm", "post_ffw_norm"},
}

var (
	mixtralExperts = GGUFExperts{
		Module:     "block_sparse_moe.experts",
		Parts:      [][2]string{{"w1", "ffn_gate_exps"}, {"w2", "ffn_down_exps"}, {"w3", "ffn_up_exps"}},
		Beside:     [][2]string{{"block_sparse_moe.gate", GGUFRouter}},
		Normalized: true,
	}
	qwenParts    = [][2]string{{"gate_proj", "ffn_gate_exps"}, {"down_proj", "ffn_down_exps"}, {"up_proj", "ffn_up_exps"}}
	qwen2Experts = GGUFExperts{
		Module: "mlp.experts",
		Parts:  qwenParts,
		Beside: [][2]string{
			{"mlp.gate", GGUFRouter}, {"mlp.shared_expert_gate", GGUFSharedRouter},
			{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"}, {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
			{"mlp.shared_expert.up_proj", "ffn_up_shexp"},
		},
		Configured: true,
		Shared:     true,
	}
	qwen3Experts = GGUFExperts{Module: "mlp.experts", Parts: qwenParts, Beside: [][2]string{{"mlp.gate", GGUFRouter}}, Configured: true,
		Normalized: true}

	gptOSSExperts = GGUFExperts{Module: "mlp.experts", Parts: qwenParts, Beside: [][2]string{{"mlp.router", GGUFRouter}}, Fused: true}
)

// The names and keys of DeepSeek-V3. Attention is written as one head of keys and values for each of queries, with the
// matrix of both (attn_kv_b) as in the checkpoint.
var (
	deepSeekModules = [][2]string{
		{"self_attn.q_a_proj", "attn_q_a"}, {"self_attn.q_a_layernorm", "attn_q_a_norm"}, {"self_attn.q_b_proj", "attn_q_b"},
		{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"}, {"self_attn.kv_a_layernorm", "attn_kv_a_norm"}, {"self_attn.kv_b_proj", "attn_kv_b"},
	}
	deepSeekUnscaled = []string{"attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b"}

	deepSeekTensors = [][2]string{{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}}
	deepSeekExperts = GGUFExperts{
		Module: "mlp.experts",
		Parts:  qwenParts,
		Beside: [][2]string{
			{"mlp.gate", GGUFRouter}, {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
			{"mlp.shared_experts.down_proj", "ffn_down_shexp"}, {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
		},
		Routed: true,
	}
	deepSeekKeys = []GGUFKey{
		{"leading_dense_block_count", "first_k_dense_replace", true}, {"attention.q_lora_rank", "q_lora_rank", true},
		{"attention.kv_lora_rank", "kv_lora_rank", true},
		{"expert_shared_count", "n_shared_experts", true}, {"expert_weights_scale", "routed_scaling_factor", false},
		{"expert_group_count", "n_group", true}, {"expert_group_used_count", "topk_group", true},
	}
)

var ggufWindow = GGUFKey{"attention.sliding_window", "sliding_window", true}
