package family

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/configjson"
)

// Settings are the keys of configurations that families read. Pointers are nil for absent keys.
type Settings struct {
	Config

	HiddenAct        string          `json:"hidden_act"`
	HiddenActivation string          `json:"hidden_activation"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	RopeScaling      json.RawMessage `json:"rope_scaling"`
	RopeParameters   json.RawMessage `json:"rope_parameters"` // theta and scaling in files of transformers 5
	PartialRotary    float64         `json:"partial_rotary_factor"`
	RopeLocalBase    float64         `json:"rope_local_base_freq"`
	OriginalLength   int             `json:"original_max_position_embeddings"`
	NoRopeLayers     []int           `json:"no_rope_layers"` // 1: the layer has rotary embedding
	NoRopeInterval   int             `json:"no_rope_layer_interval"`

	LayerTypes         []string `json:"layer_types"`
	SlidingWindow      *int     `json:"sliding_window"`
	UseSlidingWindow   bool     `json:"use_sliding_window"`
	MaxWindowLayers    int      `json:"max_window_layers"`
	WindowPattern      int      `json:"sliding_window_pattern"`
	SavedWindowPattern int      `json:"_sliding_window_pattern"`

	QueryPreAttnScalar  float64 `json:"query_pre_attn_scalar"`
	ScoreSoftcap        float64 `json:"attn_logit_softcapping"`
	LogitSoftcap        float64 `json:"final_logit_softcapping"`
	EmbeddingMultiplier float64 `json:"embedding_multiplier"`
	ResidualMultiplier  float64 `json:"residual_multiplier"`
	AttentionMultiplier float64 `json:"attention_multiplier"`
	LogitsScaling       float64 `json:"logits_scaling"`
	SwiGLULimit         float64 `json:"swiglu_limit"`

	Experts       int   `json:"num_experts"`
	LocalExperts  int   `json:"num_local_experts"`
	RoutedExperts int   `json:"n_routed_experts"`
	ExpertsChosen int   `json:"num_experts_per_tok"`
	ExpertWidth   int   `json:"moe_intermediate_size"`
	SharedWidth   int   `json:"shared_expert_intermediate_size"`
	SharedExperts int   `json:"n_shared_experts"`
	NormTopK      *bool `json:"norm_topk_prob"`
	SparseStep    int   `json:"decoder_sparse_step"`
	DenseLayers   []int `json:"mlp_only_layers"`
	FirstDense    int   `json:"first_k_dense_replace"`

	NextLayers    int     `json:"num_nextn_predict_layers"` // after the last, for further tokens
	Groups        int     `json:"n_group"`
	ChosenGroups  int     `json:"topk_group"`
	RoutedScaling float64 `json:"routed_scaling_factor"`
	QueryRank     int     `json:"q_lora_rank"`
	KeyValueRank  int     `json:"kv_lora_rank"`
	PlainDim      int     `json:"qk_nope_head_dim"`
	RotatedDim    int     `json:"qk_rope_head_dim"`
	ValueDim      int     `json:"v_head_dim"`
}

// Read parses a config.json. A decoder that this package does not compute is an error that
// matches errors.ErrUnsupported, and so is a key that the family does not know.
func Read(data []byte) (*Family, *Settings, error) {
	keys, null, err := givenKeys(data)
	if err != nil {
		return nil, nil, err
	}
	var head struct {
		ModelType     string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if err := decode(keys, &head); err != nil {
		return nil, nil, err
	}
	f, err := familyOf(head.ModelType, head.Architectures)
	if err != nil {
		return nil, nil, err
	}
	s, err := f.settings(keys, null)
	return f, s, err
}

// Read parses a config.json of the family, whatever its model_type.
func (f *Family) Read(data []byte) (*Settings, error) {
	keys, null, err := givenKeys(data)
	if err != nil {
		return nil, err
	}
	return f.settings(keys, null)
}

// settings returns the settings for the keys that are given, and for those that are null.
func (f *Family) settings(keys map[string]json.RawMessage, null []string) (*Settings, error) {
	if err := f.checkKeys(keys); err != nil {
		return nil, err
	}
	s := &Settings{}
	if err := f.setDefaults(s, keys, null); err != nil {
		return nil, err
	}
	if err := decode(keys, s); err != nil {
		return nil, err
	}
	if s.Microscale.Vocabulary == "" {
		s.Microscale.Vocabulary = tokenizer
	}
	if f.Latent {
		if err := s.latentHeads(); err != nil {
			return nil, err
		}
	}
	s.Config = s.Config.WithDefaults()
	r, err := s.Rope(f, FullLayer)
	if err != nil {
		return nil, err
	}
	s.RopeTheta = r.Theta
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return s, nil
}

// givenKeys returns the keys of a configuration that have values, and those that are null.
func givenKeys(data []byte) (keys map[string]json.RawMessage, null []string, err error) {
	keys, err = configurationKeys(data)
	maps.DeleteFunc(keys, func(key string, value json.RawMessage) bool {
		if string(value) != "null" {
			return false
		}
		null = append(null, key) // these have no default
		return true
	})
	return keys, null, err
}

// latentHeads sets the sizes of heads that package nn computes for latent attention.
func (s *Settings) latentHeads() error {
	for _, n := range []struct {
		key   string
		value int
		least int
	}{
		{"q_lora_rank", s.QueryRank, 0}, {"kv_lora_rank", s.KeyValueRank, 1}, {"qk_nope_head_dim", s.PlainDim, 1},
		{"qk_rope_head_dim", s.RotatedDim, 2}, {"v_head_dim", s.ValueDim, 1},
	} {
		if n.value < n.least || n.value > 1<<20 {
			return fmt.Errorf("config.json: %s is %d, want %d to %d", n.key, n.value, n.least, 1<<20)
		}
	}
	s.HeadDim, s.NumKeyValueHeads = s.PlainDim+s.RotatedDim, s.NumAttentionHeads
	if s.ValueDim > s.HeadDim {
		return Unsupported(fmt.Errorf("config.json: v_head_dim is %d: only up to %d, the size of a head of keys, is supported", s.ValueDim,
			s.HeadDim))
	}
	return nil
}

// Default returns what a configuration without keys stands for. It panics if the defaults of the row are no
// JSON object.
func (f *Family) Default() Settings {
	var s Settings
	if err := f.setDefaults(&s, nil, nil); err != nil {
		panic(err)
	}
	return s
}

// DefaultOf returns the default of a key.
func (f *Family) DefaultOf(key string) (value json.RawMessage, ok bool) {
	defaults := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(f.Defaults), &defaults) != nil {
		return nil, false
	}
	value, ok = defaults[key]
	return value, ok
}

// setDefaults sets the defaults of the family, except those of keys that are null, and of a number of
// experts that the configuration has under another name.
func (f *Family) setDefaults(s *Settings, keys map[string]json.RawMessage, null []string) error {
	if f.Defaults == "" {
		return nil
	}
	defaults := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(f.Defaults), &defaults); err != nil {
		return fmt.Errorf("defaults of %s: %w", f.Name, err)
	}
	has := func(key string) bool { _, ok := keys[key]; return ok }
	maps.DeleteFunc(defaults, func(key string, _ json.RawMessage) bool {
		return slices.Contains(null, key) || slices.Contains(expertCountKeys, key) && slices.ContainsFunc(expertCountKeys, has)
	})
	return decode(defaults, s)
}

// configurationKeys returns the keys of a configuration: those of the decoder if it is one of a
// multimodal model.
func configurationKeys(data []byte) (map[string]json.RawMessage, error) {
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if text, ok := keys[configjson.TextKey]; ok {
		return object(configjson.TextKey, text)
	}
	return keys, nil
}

// decode sets the fields of dst from keys.
func decode(keys map[string]json.RawMessage, dst any) error {
	data, err := json.Marshal(keys)
	if err == nil {
		err = json.Unmarshal(data, dst)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("config.json: %s: unexpected %s", e.Field[strings.LastIndexByte(e.Field, '.')+1:], e.Value) // without embedded structs
	}
	if err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	return nil
}

// object returns the members of a key of config.json.
func object(key string, value json.RawMessage) (members map[string]json.RawMessage, err error) {
	err = json.Unmarshal(value, &members)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, fmt.Errorf("config.json: %s: unexpected %s, want an object", key, e.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("config.json: %s: %w", key, err)
	}
	return members, nil
}

// checkKeys returns an error for a key that the family does not read, and for a value that it does not
// compute.
func (f *Family) checkKeys(keys map[string]json.RawMessage) error {
	required := map[string]json.RawMessage{}
	if f.Require != "" {
		if err := json.Unmarshal([]byte(f.Require), &required); err != nil {
			return fmt.Errorf("required keys of %s: %w", f.Name, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		value := compact(keys[key])
		want, ok := required[key]
		known := slices.Contains(commonKeys, key) || slices.Contains(f.Keys, key) || slices.Contains(harmlessKeys, key) ||
			slices.Contains(configjson.QuantizationKeys, key)
		switch {
		case ok && !sameJSON(value, want):
			return Unsupported(fmt.Errorf("config.json: %s is %.80s: only %s is supported for %s", key, value, want, f.Name))
		case !ok && !known:
			return Unsupported(fmt.Errorf("config.json: the key %q, with the value %.80s, is not known for %s: it may change what the model "+
				"computes", key, value, f.Name))
		}
	}
	return nil
}

func compact(value json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return string(value)
	}
	return b.String()
}

// sameJSON reports whether two values are equal: numbers by value.
func sameJSON(a string, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// A Rope is the content of rope_scaling or rope_parameters.
type Rope struct {
	Type            string    `json:"rope_type"`
	OldType         string    `json:"type"`
	Theta           float64   `json:"rope_theta"`
	PartialRotary   float64   `json:"partial_rotary_factor"`
	Factor          float64   `json:"factor"`
	LowFrequency    float64   `json:"low_freq_factor"`
	HighFrequency   float64   `json:"high_freq_factor"`
	OriginalLength  float64   `json:"original_max_position_embeddings"`
	AttentionFactor float64   `json:"attention_factor"`
	BetaFast        float64   `json:"beta_fast"`
	BetaSlow        float64   `json:"beta_slow"`
	MScale          float64   `json:"mscale"`
	MScaleAllDim    float64   `json:"mscale_all_dim"`
	Truncate        *bool     `json:"truncate"`
	ShortFactor     []float64 `json:"short_factor"`
	LongFactor      []float64 `json:"long_factor"`

	// AttnFactor is in DeepSeek's distillations of Qwen3. transformers ignores it.
	AttnFactor json.RawMessage `json:"attn_factor"`

	Key string `json:"-"` // of the configuration
}

// Rope returns the settings of rotary embedding for layers of a type.
func (s *Settings) Rope(f *Family, layerType string) (Rope, error) {
	r := Rope{}
	raw, name := s.RopeParameters, "rope_parameters"
	if len(raw) == 0 {
		raw, name = s.RopeScaling, "rope_scaling"
		if f.LocalRope && layerType == SlidingLayer {
			raw = nil
			if r.Theta = s.RopeLocalBase; r.Theta == 0 {
				r.Theta = s.RopeTheta
			}
		}
	}
	if len(raw) > 0 {
		byType, err := object(name, raw)
		if err != nil {
			return r, err
		}
		if value, ok := byType[layerType]; ok {
			raw = value
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		err = d.Decode(&r)
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			if e.Field != "" {
				name += ": " + e.Field
			}
			return r, fmt.Errorf("config.json: %s: unexpected %s", name, e.Value)
		}
		if err != nil {
			return r, Unsupported(fmt.Errorf("config.json: %s: %s", name, strings.TrimPrefix(err.Error(), "json: ")))
		}
	}
	r.Key = name
	if r.Type == "" {
		r.Type = r.OldType
	}
	if r.Theta == 0 {
		r.Theta = s.RopeTheta
	}
	if r.PartialRotary == 0 {
		r.PartialRotary = s.PartialRotary
	}
	if r.OriginalLength == 0 {
		r.OriginalLength = float64(s.OriginalLength)
	}
	return r, nil
}
