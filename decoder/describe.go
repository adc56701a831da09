package decoder

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/family"
)

// String describes the plan in a line for the model and one for each kind of layer.
func (p *Plan) String() string {
	var b strings.Builder
	head := "separate head"
	if p.Tied {
		head = "tied head"
	}
	fmt.Fprintf(&b, "%s: %d layers of width %d, %d tokens, %d positions, %s", p.Family, len(p.Layers), p.Hidden, p.Vocabulary, p.Positions,
		head)
	for _, factor := range []struct {
		name  string
		value float64
		plain float64
	}{{"embedding ×", p.Embedding, 1}, {"logits ×", p.Logits, 1}, {"softcap of logits ", p.Softcap, 0}} {
		if factor.value != factor.plain {
			fmt.Fprintf(&b, ", %s%.6g", factor.name, factor.value)
		}
	}
	b.WriteString("\n")
	var kinds []string
	members := map[string][]int{}
	for i := range p.Layers {
		text := p.Layers[i].attention() + "; " + p.Layers[i].feedForward()
		if members[text] == nil {
			kinds = append(kinds, text)
		}
		members[text] = append(members[text], i)
	}
	for _, text := range kinds {
		fmt.Fprintf(&b, "%s: %s\n", layersText(members[text]), text)
	}
	return b.String()
}

// layersText names layers in ascending order: a run, every n-th of a run, or a list of runs.
func layersText(layers []int) string {
	first, last := layers[0], layers[len(layers)-1]
	if len(layers) == 1 {
		return fmt.Sprintf("layer %d", first)
	}
	if step := layers[1] - first; step > 1 && last-first == step*(len(layers)-1) {
		return fmt.Sprintf("layers %d to %d, every %d", first, last, step)
	}
	var runs []string
	for from := 0; from < len(layers); {
		to := from
		for to+1 < len(layers) && layers[to+1] == layers[to]+1 {
			to++
		}
		run := fmt.Sprint(layers[from])
		if to > from {
			run = fmt.Sprintf("%d–%d", layers[from], layers[to])
		}
		runs = append(runs, run)
		from = to + 1
	}
	return "layers " + strings.Join(runs, ", ")
}

// placed returns a clause about norms before and after a module.
func placed(before, after bool) string {
	switch {
	case before && after:
		return ", norms before and after"
	case after:
		return ", norm after"
	case before:
		return ""
	}
	return ", no norm"
}

func (l *LayerPlan) attention() string {
	a := l.Attention
	var b strings.Builder
	fmt.Fprintf(&b, "attention of %d heads of %d", a.Heads, a.HeadDim)
	if p := a.Latent; p != nil {
		fmt.Fprintf(&b, ", latent K and V of %d", p.Rank)
		if p.QueryRank > 0 {
			fmt.Fprintf(&b, ", latent Q of %d", p.QueryRank)
		}
		fmt.Fprintf(&b, ", heads of V of %d", p.Value)
	}
	if a.KVHeads != a.Heads {
		fmt.Fprintf(&b, ", %d of K and V", a.KVHeads)
	}
	fmt.Fprintf(&b, ", scale %.6g", a.Scale)
	if a.Window > 0 {
		fmt.Fprintf(&b, ", window %d", a.Window)
	}
	if a.Softcap > 0 {
		fmt.Fprintf(&b, ", softcap %.6g", a.Softcap)
	}
	if a.Sinks {
		b.WriteString(", sinks")
	}
	if a.Norm != family.NoNorm {
		fmt.Fprintf(&b, ", Q and K normalized by %s", map[family.NormKind]string{family.HeadNorm: "head", family.WholeNorm: "token"}[a.Norm])
	}
	switch {
	case a.Bias && a.OutputBias:
		b.WriteString(", biases")
	case a.Bias:
		b.WriteString(", biases of Q, K and V")
	}
	b.WriteString(a.Rope.text(a.HeadDim))
	b.WriteString(placed(l.AttentionInput, l.AttentionOutput))
	return b.String()
}

func (r *RopePlan) text(head int) string {
	if r == nil {
		return ", no positions"
	}
	text := fmt.Sprintf(", rope θ %.6g", r.Base)
	if r.Scaling != "default" {
		text += " " + r.Scaling
	}
	if r.Rotated != head {
		text += fmt.Sprintf(" on %d elements", r.Rotated)
	}
	if r.Interleaved {
		text += " interleaved"
	}
	return text
}

func (l *LayerPlan) feedForward() string {
	var b strings.Builder
	if e := l.Experts; e != nil {
		fmt.Fprintf(&b, "%d of %d experts by %s", e.Chosen, e.Count, e.Score)
		if e.Groups > 1 {
			fmt.Fprintf(&b, " from %d of %d groups", e.FromGroups, e.Groups)
		}
		if e.Normalize {
			b.WriteString(", normalized")
		}
		if e.Scale != 1 {
			fmt.Fprintf(&b, ", × %.6g", e.Scale)
		}
		if e.Shared > 0 {
			fmt.Fprintf(&b, ", shared expert %d", e.Shared)
		}
		b.WriteString(", ")
	}
	fmt.Fprintf(&b, "MLP %d %s", l.MLP.Width, l.MLP.Activation)
	if l.MLP.Limit != 0 {
		fmt.Fprintf(&b, " within ±%.6g", l.MLP.Limit)
	}
	if l.MLP.Bias {
		b.WriteString(", biases")
	}
	b.WriteString(placed(l.MLPInput, l.MLPOutput))
	if l.Residual != 1 {
		fmt.Fprintf(&b, ", residual × %.6g", l.Residual)
	}
	return b.String()
}
