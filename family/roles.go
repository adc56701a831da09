package family

import (
	"regexp"
	"slices"
)

// A Role is what a weight is if it is not that of an ordinary linear layer.
type Role struct {
	Name  string
	Other bool // the module is not a linear one
}

// A roleRow is a row of roles.
type roleRow struct {
	*Role
	name *regexp.Regexp
	is   func(m *Model, name string, shape []int64) bool // beside the name; nil: the name suffices
}

// roles are the weights that engines expect in high precision, in their order. What shapes and the
// configuration say comes first (Model.Roles).
var roles = []roleRow{
	{&Role{"bias", true}, regexp.MustCompile(`bias$`), nil}, // of all experts of a layer
	{&Role{"norm", true}, regexp.MustCompile(`norm|(^|\.)ln_`), nil},
	{&Role{"vision or audio", false},
		regexp.MustCompile(`vision|visual|(^|\.)(audio|image|img|speech)_|audio_tower|multi_modal_projector|mm_projector|patch_merger`), nil},
	{furtherTokens, regexp.MustCompile(`(^|[._])mtp|nextn|(^|\.)eh_proj\.`), nil},
	{&Role{"embedding", true},
		regexp.MustCompile(`embe?d|(^|[._])emb\.|(^|\.)w[tp]e\.|(^|\.)shared\.weight$|relative_attention_bias|attn_rel_b|^token_types\.`), nil},
	{head, regexp.MustCompile(`(^|\.)(lm_head|head|classifier|score|cls|qa_outputs|output_layer|proj_out|embed_out)\.|^output\.`),
		outsideLayers},
	{&Role{"adapter", true}, regexp.MustCompile(`(^|[._])lora_`), nil},
	{router, regexp.MustCompile(`router|(^|\.)gate\.weight$|shared_expert_gate|ffn_gate_inp`), nil},
	{&Role{"transposed, as GPT-2 has it", true}, ofGPT2, func(m *Model, _ string, _ []int64) bool { return m == nil || !m.linear }},
	{&Role{"convolution", true}, regexp.MustCompile(`(^|\.)conv|conv1d`),
		func(_ *Model, _ string, shape []int64) bool { return shape[len(shape)-1] < leastColumns }},
	{&Role{"decay of linear attention", false}, regexp.MustCompile(`(^|\.)linear_attn\.in_proj_(a|b|ba)\.`), nil},
	{&Role{"step sizes of Mamba", false}, regexp.MustCompile(`(^|\.)(x_proj|dt_proj|ssm_x|ssm_dt)\.`), nil},
	{&Role{"indexer of sparse attention", false}, regexp.MustCompile(`(^|\.)indexer\.`), nil},
	{&Role{"side path of Gemma 3n", false}, regexp.MustCompile(`(^|\.)(altup|laurel|per_layer_(model_proj|input_gate|proj))`), nil},
	{&Role{"mixing of RWKV", false}, regexp.MustCompile(`(^|\.)time_mix_(\w*lerp\w*|first|decay_w\d|[wvag]\d)\.`), nil},
}

// Linear reports whether a two-dimensional weight may belong to a linear module that clients expect quantized: it is not an
// embedding, a router or of another kind of module. Shapes decide first.
func (m *Model) Linear(name string, shape []int64) bool {
	switch found := m.Roles(name, shape); {
	case slices.Contains(found, head):
		return true
	case m != nil && (slices.Contains(m.tables, shape[0]) || slices.Contains(m.experts, shape[0])), slices.Contains(found, router):
		return false
	default:
		return !slices.ContainsFunc(found, func(r *Role) bool { return r.Other })
	}
}

// The roles that shapes and the configuration decide.
var (
	router = &Role{"router", false}
	head   = &Role{"output head", false}
)

// PredictsFurther reports whether the role is that of modules that predict further tokens.
func (r *Role) PredictsFurther() bool { return r == furtherTokens }

// furtherTokens is the role of modules that predict further tokens.
var furtherTokens = &Role{"multi-token prediction", false}

var (
	ofGPT2 = regexp.MustCompile(`(^|\.)c_(attn|proj|fc)\.`)

	// routerWords are the names of routers among weights of their shape.
	routerWords = regexp.MustCompile(`(^|[._])(router|gate|wg)(\.|$)`)

	// singleExpert begins the name of a tensor of one expert, after "experts.".
	singleExpert = regexp.MustCompile(`^(expert_?)?\d+\.`)

	// sharedExperts are modules of experts that take all tokens.
	sharedExperts = regexp.MustCompile(`(^|\.)shared_experts?\.`)

	// notStack are tensors with a number for each row or column of every expert.
	notStack = regexp.MustCompile(`bias$|norm|_scales?$|_scale_inv$|_blocks$|_packed$|\.weight_`)

	// hiddenLayer finds the number of a layer of the language model. Layers from num_hidden_layers on predict
	// further tokens (DeepSeek-V3's model.layers.61).
	hiddenLayer = regexp.MustCompile(`^(?:model\.|language_model\.|text_model\.|backbone\.|transformer\.)*(?:layers|h)\.(\d+)\.`)
)

// outsideLayers reports whether a tensor is outside of every list of modules: the head of a model is not a
// part of a layer.
func outsideLayers(m *Model, name string, _ []int64) bool {
	_, _, inLayer := cutNumber(name)
	return !inLayer || m.predictsFurther(name)
}

// Roles returns what a weight is if it is not that of an ordinary linear layer, the most certain role
// first; nil if it is one.
func (m *Model) Roles(name string, shape []int64) (found []*Role) {
	add := func(r *Role) {
		if !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	if m != nil && m.routers[name] {
		add(router)
	}
	for _, r := range roles {
		if r.name.MatchString(name) && (r.is == nil || r.is(m, name, shape)) {
			add(r.Role)
		}
	}
	if m.predictsFurther(name) {
		add(furtherTokens)
	}
	return found
}
