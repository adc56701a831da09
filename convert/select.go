package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// left are the weights that stay unquantized unless they are included by name, because every
// engine expects them in high precision. The first matching row gives the reason.
var left = []struct {
	reason string
	other  bool // the module is not a linear one
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

// unknownExperts is the reason for the experts of unknown families.
const unknownExperts = "fused experts, whose layout is not known for this model type"

// excluded is the reason for a weight that QuantizeOptions.exclude matches.
const excluded = "excluded"

// hiddenLayer finds the number of a layer of the language model. Layers from
// num_hidden_layers on predict further tokens (DeepSeek-V3's model.layers.61).
var hiddenLayer = regexp.MustCompile(`^(?:model\.|language_model\.)*layers\.(\d+)\.`)

// A selection says which of the weights that shape and dtype allow are quantized.
type selection struct {
	include, exclude []*regexp.Regexp // see QuantizeOptions

	layers int64 // of the language model, without those that predict further tokens; 0: unknown
}

// reason returns why a weight is not quantized, or "" if it is.
func (s selection) reason(w *checkpoint.Weight, f quant.Format, c *checkpoint.Convention) string {
	switch why := c.RejectsExperts(w); {
	case why != "":
		return why
	case len(w.Shape) == 3 && w.ExpertsKnown(): // the convention supports them
	case len(w.Shape) == 3 && checkpoint.IsFused(w.Name):
		return unknownExperts
	case len(w.Shape) != 2:
		return dimensions(len(w.Shape))
	}
	if !w.Dense() {
		return w.FormatName() + " elements"
	}
	if matches(s.exclude, w.Name) {
		return excluded
	}
	included := matches(s.include, w.Name)
	for _, l := range left {
		switch {
		case !l.name.MatchString(w.Name):
		case !included:
			return l.reason
		case l.other && c.LinearOnly():
			return fmt.Sprintf("%s: %s supports linear modules only", l.reason, c)
		}
	}
	if found := hiddenLayer.FindStringSubmatch(w.Name); found != nil && s.layers > 0 && !included {
		if n, err := strconv.ParseInt(found[1], 10, 64); err == nil && n >= s.layers {
			return "multi-token prediction"
		}
	}
	return c.Rejects(f, w.Name, w.Shape)
}

// otherModule returns why a weight does not belong to a linear module, or "".
func otherModule(name string) string {
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

// matched returns an error if a pattern matches no weight: it is probably misspelled.
func (s selection) matched(m *checkpoint.Model) error {
	for _, list := range []struct {
		name     string
		patterns []*regexp.Regexp
	}{{"include", s.include}, {"exclude", s.exclude}} {
		for _, p := range list.patterns {
			named := func(w *checkpoint.Weight) bool { return p.MatchString(w.Name) }
			if !slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool { return named(w) || slices.ContainsFunc(w.Split(), named) }) {
				return fmt.Errorf("the %s pattern '%s' matches no weight of %s: use the names of its weights", list.name, p, m.Source.Path)
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
