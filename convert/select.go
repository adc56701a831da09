package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// left are the weights that stay as they are unless they are included by name:
// those that every engine expects in high precision. The first row that matches
// gives the reason.
var left = []struct {
	reason string
	other  bool // the module is none of class Linear
	name   *regexp.Regexp
}{
	{"bias", true, regexp.MustCompile(`bias$`)}, // of all experts of a layer
	{"norm", true, regexp.MustCompile(`norm|(^|\.)ln_`)},
	{"vision or audio", false, regexp.MustCompile(`vision|visual|(^|\.)(audio|image|img|speech)_|audio_tower|multi_modal_projector|mm_projector|patch_merger`)},
	{"multi-token prediction", false, regexp.MustCompile(`(^|\.)mtp\.|nextn|(^|\.)eh_proj\.`)},
	{"embedding", true, regexp.MustCompile(`embed|(^|[._])emb\.|(^|\.)w[tp]e\.|(^|\.)shared\.weight$|relative_attention_bias`)},
	{"output head", false, regexp.MustCompile(`(^|\.)(lm_head|head|classifier|score|cls|qa_outputs|output_layer|proj_out)\.|^output\.`)},
	{"adapter", true, regexp.MustCompile(`(^|[._])lora_`)},
	{"router", false, regexp.MustCompile(`router|(^|\.)gate\.weight$|shared_expert_gate`)},
	{"transposed, as GPT-2 has it", true, regexp.MustCompile(`(^|\.)c_(attn|proj|fc)\.`)},
	{"convolution", true, regexp.MustCompile(`(^|\.)conv|conv1d`)},
	{"decay of linear attention", false, regexp.MustCompile(`(^|\.)linear_attn\.in_proj_(a|b|ba)\.`)},
	{"step sizes of Mamba", false, regexp.MustCompile(`(^|\.)(x_proj|dt_proj)\.`)},
	{"indexer of sparse attention", false, regexp.MustCompile(`(^|\.)indexer\.`)},
	{"side path of Gemma 3n", false, regexp.MustCompile(`(^|\.)(altup|laurel|per_layer_(model_projection|input_gate|projection))`)},
}

// unknownExperts is why the experts of a family that is not known stay.
const unknownExperts = "fused experts, whose layout is not known for this model type"

// excluded is why a weight stays that Selection.Exclude matches.
const excluded = "excluded"

// hiddenLayer finds the number of a layer of the language model. Those from
// num_hidden_layers on predict further tokens (DeepSeek-V3's model.layers.61).
var hiddenLayer = regexp.MustCompile(`^(?:model\.|language_model\.)*layers\.(\d+)\.`)

// Selection says which weights are quantized, beyond what shape and dtype allow.
type Selection struct {
	Include []*regexp.Regexp // quantize a match even where it stays as it is by default
	Exclude []*regexp.Regexp // never quantize a match; wins over Include

	layers int64 // of the language model, those that predict further tokens aside; 0: not known
}

// reason returns why a weight is not quantized, or "" where it is.
func (s Selection) reason(w *checkpoint.Weight, f quant.Format, c *checkpoint.Convention) string {
	switch why := c.RefusesExperts(w); {
	case why != "":
		return why
	case len(w.Shape) == 3 && w.ExpertsKnown(): // the convention says whether it holds them
	case len(w.Shape) == 3 && checkpoint.IsFused(w.Name):
		return unknownExperts
	case len(w.Shape) != 2:
		return dimensions(len(w.Shape))
	}
	if !w.Dense() {
		return w.FormatName() + " elements"
	}
	if matches(s.Exclude, w.Name) {
		return excluded
	}
	included := matches(s.Include, w.Name)
	for _, l := range left {
		switch {
		case !l.name.MatchString(w.Name):
		case !included:
			return l.reason
		case l.other && c.LinearOnly():
			return fmt.Sprintf("%s: %s holds linear modules only", l.reason, c)
		}
	}
	if found := hiddenLayer.FindStringSubmatch(w.Name); found != nil && s.layers > 0 && !included {
		if n, err := strconv.ParseInt(found[1], 10, 64); err == nil && n >= s.layers {
			return "multi-token prediction"
		}
	}
	return c.Refuses(f, w.Name, w.Shape)
}

// foreignClass returns why a weight is none of a linear module, or "".
func foreignClass(name string) string {
	for _, l := range left {
		if l.other && l.name.MatchString(name) {
			return l.reason
		}
	}
	return ""
}

func dimensions(n int) string {
	if n == 1 {
		return "has 1 dimension"
	}
	return fmt.Sprintf("has %d dimensions", n)
}

// matched fails where a pattern matches no weight: it is misspelled, and what it
// should have spared would be quantized.
func (s Selection) matched(m *checkpoint.Model) error {
	for _, list := range []struct {
		flag     string
		patterns []*regexp.Regexp
	}{{"include", s.Include}, {"exclude", s.Exclude}} {
		for _, p := range list.patterns {
			named := func(w *checkpoint.Weight) bool { return p.MatchString(w.Name) }
			if !slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool { return named(w) || slices.ContainsFunc(w.Split(), named) }) {
				return fmt.Errorf("--%s '%s' matches no weight of %s: microscale inspect lists their names", list.flag, p, m.Source.Path)
			}
		}
	}
	return nil
}

func matches(patterns []*regexp.Regexp, name string) bool {
	for _, p := range patterns {
		if p.MatchString(name) {
			return true
		}
	}
	return false
}
