package push

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/verify"
)

// CardName is the name of the model card.
const CardName = "README.md"

// A Card is what a model card says of a checkpoint.
type Card struct {
	Title      string // of the page
	Model      *checkpoint.Model
	Base       string         // OWNER/NAME of the original; "": unknown
	Errors     *verify.Report // against the original; nil: not measured
	Divergence *Divergence    // nil: not measured
	Version    string         // of this program
}

// A Divergence is the KL divergence of a model from its original in nats per scored token, with the 95 % interval of its mean over
// windows; NaN for one window.
type Divergence struct {
	KL, Low, High float64
	Tokens        int
}

// Text returns the card: the metadata and the text of the original's card, original, follow what is new.
func (c Card) Text(original []byte) ([]byte, error) {
	front, rest := split(original)
	front["tags"] = c.tags(front["tags"])
	if c.Base != "" {
		front["base_model"], front["base_model_relation"] = c.Base, "quantized"
	}
	header, err := yaml.Marshal(front)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "---\n%s---\n\n# %s\n\n", header, c.Title)
	c.writeContent(&b)
	c.writeErrors(&b)
	if d := c.Divergence; d != nil {
		fmt.Fprintf(&b, "## Divergence\n\nKL divergence from the original: %.4g nats per token", d.KL)
		if !math.IsNaN(d.Low) {
			fmt.Fprintf(&b, " (95 %% interval %.4g to %.4g)", d.Low, d.High)
		}
		fmt.Fprintf(&b, ", over %d tokens.\n\n", d.Tokens)
	}
	if text := bytes.TrimSpace(rest); len(text) > 0 {
		fmt.Fprintf(&b, "## Card of the original\n\n%s\n", text)
	}
	return b.Bytes(), nil
}

// split divides a card into its metadata and its text. Metadata that are not valid count as text.
func split(card []byte) (front map[string]any, rest []byte) {
	lines := bytes.SplitAfter(card, []byte("\n"))
	isFence := func(line []byte) bool { return string(bytes.TrimRight(line, "\r\n")) == "---" }
	if end := slices.IndexFunc(lines[1:], isFence) + 1; isFence(lines[0]) && end > 0 {
		if yaml.Unmarshal(bytes.Join(lines[1:end], nil), &front) == nil && front != nil {
			return front, bytes.Join(lines[end+1:], nil)
		}
	}
	return map[string]any{}, card
}

// tags returns the tags of a card with those of the checkpoint: its formats and its convention.
func (c Card) tags(given any) []string {
	var tags []string
	if list, ok := given.([]any); ok {
		for _, t := range list {
			tags = append(tags, fmt.Sprint(t))
		}
	} else if one, ok := given.(string); ok {
		tags = append(tags, one)
	}
	own := []string{"microscale"}
	for _, f := range c.Model.Formats() {
		own = append(own, f.Name)
	}
	if c.Model.Convention != nil {
		own = append(own, c.Model.Convention.Name)
	}
	for _, t := range own {
		if !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	return tags
}

// writeContent writes what the checkpoint has, and how codes and scales were chosen if its metadata say so.
func (c Card) writeContent(b *bytes.Buffer) {
	m := c.Model
	what := "A checkpoint"
	if c.Base != "" {
		what = fmt.Sprintf("[%s](https://huggingface.co/%[1]s)", c.Base)
	}
	if m.Convention == nil {
		fmt.Fprintf(b, "%s, without quantized weights.\n\n", what)
		return
	}
	by := "quantized"
	if converted(m) {
		by = "converted with [Microscale](https://github.com/microscale-go/microscale)"
	}
	fmt.Fprintf(b, "%s, %s, and stored as %s", what, by, m.Convention.Name)
	if m.Scheme != "" {
		fmt.Fprintf(b, " (%s)", m.Scheme)
	}
	fmt.Fprint(b, ".\n\n| format | weights | parameters |\n|---|---|---|\n")
	type count struct {
		weights    int
		parameters int64
	}
	counts := map[string]count{}
	for _, w := range m.Weights {
		name := w.Format.Name
		if !w.Quantized() {
			name = strings.ToLower(w.Dtype.String())
		}
		n := counts[name]
		parameters := int64(1)
		for _, d := range w.Shape {
			parameters *= d
		}
		counts[name] = count{n.weights + 1, n.parameters + parameters}
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-cmp.Compare(counts[a].parameters, counts[b].parameters), strings.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(b, "| %s | %d | %d |\n", name, counts[name].weights, counts[name].parameters)
	}
	fmt.Fprint(b, "\n")
	method, search := m.Method(), m.ScaleSearch()
	if method != "" {
		fmt.Fprintf(b, "Codes: %s. ", method)
	}
	if search != "" {
		fmt.Fprintf(b, "Scales: by search (%s). ", search)
	}
	fmt.Fprintf(b, "Pushed by Microscale %s.\n\n", c.Version)
}

// converted reports whether this program wrote the files, by their records. Another one may have chosen the codes.
func converted(m *checkpoint.Model) bool {
	return slices.ContainsFunc(m.Source.Shards(), func(s hf.Shard) bool {
		return s.File.Metadata()[checksum.RecordKey] != ""
	})
}

// writeErrors writes the error against the original, by format.
func (c Card) writeErrors(b *bytes.Buffer) {
	if c.Errors == nil {
		return
	}
	type row struct {
		n          int
		sum, worst float64
		name       string
	}
	rows := map[string]row{}
	var formats []string
	for i, t := range c.Errors.Tensors {
		lossy := slices.Contains([]verify.Check{verify.Bounded, verify.Calibrated, verify.DecodedOnly, verify.Unbounded}, c.Errors.Checks[i])
		if !lossy || math.IsInf(t.Result.SQNR, 0) || math.IsNaN(t.Result.SQNR) {
			continue
		}
		r, ok := rows[t.Format]
		if !ok {
			formats = append(formats, t.Format)
			r.worst = math.Inf(1)
		}
		if r.n, r.sum = r.n+1, r.sum+t.Result.SQNR; t.Result.SQNR < r.worst {
			r.worst, r.name = t.Result.SQNR, t.Name
		}
		rows[t.Format] = r
	}
	if len(formats) == 0 {
		return
	}
	fmt.Fprint(b, "## Error\n\nSignal to quantization noise of the weights against the original:\n\n"+
		"| format | weights | mean dB | lowest dB | of |\n|---|---|---|---|---|\n")
	for _, name := range formats {
		r := rows[name]
		fmt.Fprintf(b, "| %s | %d | %.2f | %.2f | `%s` |\n", name, r.n, r.sum/float64(r.n), r.worst, show.Printable(r.name))
	}
	fmt.Fprint(b, "\n")
}
