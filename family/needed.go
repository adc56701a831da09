package family

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Needed returns the names of the tensors without which a model of the family does not compute, under the
// names of language models (Model.Stored returns those of a checkpoint). A family whose experts are single
// tensors may be stored with all experts of a layer in one, and the other way round.
func (f *Family) Needed(s *Settings) iter.Seq[string] {
	return func(yield func(string) bool) {
		l := needs{family: f, settings: s, yield: yield}
		l.module("model.embed_tokens", false)
		for i := 0; i < s.NumHiddenLayers && !l.done; i++ {
			l.prefix = "model.layers." + strconv.Itoa(i) + "."
			l.layer(i)
		}
		l.prefix = ""
		l.module("model.norm", false)
		if !s.TieWordEmbeddings {
			l.module("lm_head", false)
		}
	}
}

// needs lists tensors until yield returns false.
type needs struct {
	family   *Family
	settings *Settings
	prefix   string // of a layer
	yield    func(string) bool
	done     bool
}

// tensor lists a tensor.
func (l *needs) tensor(name string) { l.done = l.done || !l.yield(l.prefix+name) }

// module lists the weight of a module, and its bias if it has one. Without a name there is none.
func (l *needs) module(name string, bias bool) {
	if name == "" {
		return
	}
	l.tensor(name + weightSuffix)
	if bias {
		l.tensor(name + ".bias")
	}
}

// modules lists several modules.
func (l *needs) modules(bias bool, names ...string) {
	for _, name := range names {
		l.module(name, bias)
	}
}

// layer lists the tensors of a layer.
func (l *needs) layer(number int) {
	n := l.family.Names
	l.modules(false, n.AttentionInput, n.AttentionOutput, n.MLPInput, n.MLPOutput)
	l.attention()
	if l.family.Experts != nil && l.settings.HasExperts(number) {
		l.experts()
		return
	}
	l.modules(l.family.MLPBias(l.settings), append(slices.Clone(n.GateUp), n.Down)...)
}

// attention lists the tensors of the attention of a layer.
func (l *needs) attention() {
	f, n := l.family, l.family.Names
	bias, output := f.AttentionBias(l.settings)
	switch {
	case !f.Latent:
		l.modules(bias, n.QKV...)
	case l.settings.QueryRank > 0:
		l.module("self_attn.q_a_proj", bias)
		l.modules(false, "self_attn.q_a_layernorm", "self_attn.q_b_proj")
	default:
		l.module("self_attn.q_proj", false)
	}
	if f.Latent {
		l.module("self_attn.kv_a_proj_with_mqa", bias)
		l.modules(false, "self_attn.kv_a_layernorm", "self_attn.kv_b_proj")
	}
	l.module(n.Output, output)
	if f.QueryNorm != NoNorm {
		l.modules(false, "self_attn.q_norm", "self_attn.k_norm")
	}
	if f.Sinks {
		l.tensor("self_attn.sinks")
	}
}

// experts lists the tensors of a layer with experts.
func (l *needs) experts() {
	f, n, bias := l.family, l.family.Names, l.family.MLPBias(l.settings)
	l.module(n.Router, f.RouterBias())
	if n.Correction != "" {
		l.tensor(n.Correction)
	}
	if n.Stacked {
		for _, name := range []string{n.Experts + "." + GateUpExperts, n.Experts + "." + DownExperts} {
			l.tensor(name)
			if bias {
				l.tensor(name + "_bias")
			}
		}
	}
	for i := 0; i < l.settings.ExpertCount() && !n.Stacked && !l.done; i++ {
		for _, part := range n.ExpertParts {
			l.module(n.Experts+"."+strconv.Itoa(i)+"."+part, bias)
		}
	}
	if n.Shared != "" {
		l.modules(bias, n.Shared+".gate_proj", n.Shared+".up_proj", n.Shared+".down_proj")
	}
	l.module(n.SharedGate, false)
}

// ends are weights before and after the layers of a language model, at least one of which is left when others are lost.
var ends = []string{"embed_tokens.weight", "lm_head.weight", "model.norm.weight", "wte.weight", "ln_f.weight"}

// IsEnd reports whether a weight is before or after the layers of a language model.
func IsEnd(name string) bool {
	return slices.ContainsFunc(ends, func(end string) bool { return name == end || strings.HasSuffix(name, "."+end) })
}

// Tied reports whether a configuration ties the output head to the embedding. For a family that is not known, it must say so.
func Tied(config []byte) bool {
	if _, s, err := Read(config); err == nil {
		return s.TieWordEmbeddings
	}
	keys, err := configurationKeys(config)
	if err != nil {
		return false
	}
	var tied bool
	_ = json.Unmarshal(keys["tie_word_embeddings"], &tied)
	return tied
}

// AttentionBias returns whether Q, K and V have biases, and whether the output does.
func (f *Family) AttentionBias(s *Settings) (qkv, output bool) {
	switch f.bias {
	case biasByKey:
		return s.AttentionBias, s.AttentionBias
	case biasQKVByKey:
		return s.AttentionBias, false
	case biasQKV:
		return true, false
	}
	return true, true
}

// MLPBias returns whether feed-forward networks have biases.
func (f *Family) MLPBias(s *Settings) bool { return s.MLPBias || f.RouterBias() }

// ExpertCount returns the number of experts of a layer.
func (s *Settings) ExpertCount() int { return max(s.Experts, s.LocalExperts, s.RoutedExperts) }

// SingleExpert reports whether a tensor belongs to one expert of a layer.
func SingleExpert(name string) bool {
	_, rest, ok := cutExperts(name)
	return ok && singleExpert.MatchString(rest)
}

// wrappers have the prefixes of the language model's tensors in multimodal models: of the tensors after
// "model.", and of the head.
var wrappers = []struct{ prefix, head string }{
	{"model.", ""},
	{"language_model.model.", "language_model."},
	{"model.language_model.", ""},
}

// Wrapped reports whether the language model is a part of a multimodal one.
func (m *Model) Wrapped() bool { return m != nil && m.wrapper > 0 }

// Stored returns the name in the checkpoint of a tensor of the language model.
func (m *Model) Stored(name string) string {
	if !m.Wrapped() {
		return name
	}
	w := wrappers[m.wrapper]
	if rest, ok := strings.CutPrefix(name, wrappers[0].prefix); ok {
		return w.prefix + rest
	}
	return w.head + name
}
