package convert

import (
	"fmt"
	"regexp"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// left are the weights that stay as they are unless they are included by name:
// those that every engine expects in high precision. The first row that matches
// gives the reason.
var left = []struct {
	reason string
	name   *regexp.Regexp
}{
	{"norm", regexp.MustCompile(`norm|(^|\.)ln_`)},
	{"embedding", regexp.MustCompile(`embed|(^|[._])emb\.|(^|\.)w[tp]e\.|(^|\.)shared\.weight$|relative_attention_bias`)},
	{"output head", regexp.MustCompile(`(^|\.)(lm_head|head|classifier|score|cls|qa_outputs)\.|^output\.`)},
	{"router", regexp.MustCompile(`router|(^|\.)gate\.weight$|shared_expert_gate`)},
	{"transposed, as GPT-2 has it", regexp.MustCompile(`(^|\.)c_(attn|proj|fc)\.`)},
	{"convolution", regexp.MustCompile(`(^|\.)conv|conv1d`)},
	{"vision or audio", regexp.MustCompile(`vision|visual|audio_tower|multi_modal_projector|mm_projector`)},
	{"multi-token prediction", regexp.MustCompile(`(^|\.)mtp\.|nextn|(^|\.)eh_proj\.`)},
}

// Selection says which weights are quantized, beyond what shape and dtype allow.
type Selection struct {
	Include []*regexp.Regexp // quantize a match even where it stays as it is by default
	Exclude []*regexp.Regexp // never quantize a match; wins over Include
}

// reason returns why a weight is not quantized, or "" where it is.
func (s Selection) reason(w *checkpoint.Weight, f quant.Format, c *checkpoint.Convention) string {
	if len(w.Shape) != 2 {
		return fmt.Sprintf("%d-D", len(w.Shape))
	}
	if !w.Dense() {
		return w.FormatName() + " elements"
	}
	if matches(s.Exclude, w.Name) {
		return "excluded"
	}
	if !matches(s.Include, w.Name) {
		for _, l := range left {
			if l.name.MatchString(w.Name) {
				return l.reason
			}
		}
	}
	return c.Refuses(f, w.Name, w.Shape)
}

func matches(patterns []*regexp.Regexp, name string) bool {
	for _, p := range patterns {
		if p.MatchString(name) {
			return true
		}
	}
	return false
}
