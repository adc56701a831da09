package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/checkpoint"
)

// adapterTensors are names of the tensors of adapters: of PEFT, LoRA and its relatives,
// IA3, and prompt tuning.
var adapterTensors = regexp.MustCompile(`^base_model\.model\.|(^|[._])lora_(A|B|E|up|down|embedding_A|embedding_B|magnitude_vector)(\.|$)|\.ia3_l|\.hada_w\d|\.lokr_w\d|\.oft_[rsR]|\.vera_lambda_|^prompt_embeddings$|^prompt_encoder\.`)

// foreignTensors are names of the tensors of other quantizations, which only their
// configuration would tell otherwise.
var foreignTensors = []struct {
	name *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`\.(qweight|qzeros)$`), "GPTQ or AWQ"},
	{regexp.MustCompile(`\.(SCB|absmax|quant_map)$|\.quant_state\.bitsandbytes__`), "bitsandbytes"},
	{regexp.MustCompile(`\.W_q$`), "HQQ"},
}

// refuseForeign fails where the weights are no model by themselves, or of a
// quantization that is not read here.
func refuseForeign(m *checkpoint.Model) error {
	isAdapter := func(w *checkpoint.Weight) bool { return adapterTensors.MatchString(w.Name) }
	if i := slices.IndexFunc(m.Weights, isAdapter); i >= 0 && !slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool { return !isAdapter(w) }) {
		return fmt.Errorf("%s: it holds an adapter (%s), which is no model: merge it into its base model first, and quantize the result", m.Source.Path, m.Weights[i].Name)
	}
	for _, f := range foreignTensors {
		if i := slices.IndexFunc(m.Weights, func(w *checkpoint.Weight) bool { return f.name.MatchString(w.Name) }); i >= 0 {
			return fmt.Errorf("%s: already quantized by %s (%s), which is not read here: start from the original checkpoint", m.Source.Path, f.what, m.Weights[i].Name)
		}
	}
	return nil
}

// refuseQuantized fails where any weight of the source is quantized.
func refuseQuantized(m *checkpoint.Model) error {
	path := m.Source.Path
	if m.Convention != nil {
		return fmt.Errorf("%s: already quantized (%s, %s): start from the original checkpoint, or quantize what is left of it with --requantize", path, m.Convention, quantizedTypes(m))
	}
	if len(m.Unread) > 0 {
		return fmt.Errorf("%s: already quantized (gguf, %s), in types that are not read here: start from the original checkpoint", path, quantizedTypes(m))
	}
	if problems := lasting(m); len(problems) > 0 {
		return fmt.Errorf("%s: already quantized, in a way that is not known here: %s", path, problems[0])
	}
	return nil
}

// quantizedTypes lists the formats of quantized weights and the types that are not
// read, those of most weights first.
func quantizedTypes(m *checkpoint.Model) string {
	count := map[string]int{}
	for _, w := range m.Weights {
		if w.Quantized() {
			count[w.FormatName()]++
		}
	}
	for _, t := range m.Unread {
		count[strings.ToLower(t)]++
	}
	if len(count) == 0 {
		return "nothing"
	}
	return strings.Join(byCount(count), ", ")
}

// lasting returns the problems that a conversion does not make good.
func lasting(m *checkpoint.Model) []checkpoint.Problem {
	return slices.DeleteFunc(slices.Clone(m.Problems), func(p checkpoint.Problem) bool { return p.Mended })
}

// larger describes a result whose tensors take more bytes than the source's, and
// returns the first of the quantized weights that are stored as values where they are
// why, and nobody asked for that.
func (p *Plan) larger() (note string, why *Decision) {
	var before, after, values int64
	n := 0
	for i, d := range p.Decisions {
		before += d.Weight.StoredBytes()
		after += d.Bytes()
		if d.Action == Decode && d.Weight.Quantized() && d.Reason != excluded {
			values += d.Bytes() - d.Weight.StoredBytes()
			n++
			if why == nil {
				why = &p.Decisions[i]
			}
		}
	}
	if after <= before {
		return "", nil
	}
	note = fmt.Sprintf("the result is larger than its source: %d bytes of tensors become %d", before, after)
	if why == nil || after-values > before {
		return note, nil
	}
	return fmt.Sprintf("%s, because quantized weights (%d) become %s, the first %s (%s)", note, n, p.FormatName(*why), why.Weight.Name, why.Reason), why
}

// refuseLarger adds the note of a larger result to the plan, the first of all. It fails
// where nobody asked for the convention because of which weights are decoded.
func (p *Plan) refuseLarger(o QuantizeOptions) error {
	note, why := p.larger()
	if note == "" {
		return nil
	}
	p.Notes = slices.Insert(p.Notes, 0, note)
	if why == nil || o.Convention != nil {
		return nil
	}
	advice := fmt.Sprintf("name --convention %s to have it all the same", p.Convention)
	if plain := checkpoint.Plain(); o.Selection.reason(why.Weight, p.Format, plain) == "" {
		advice = fmt.Sprintf("--convention %s stores them in %s; or %s", plain, p.Format, advice)
	}
	return fmt.Errorf("%s: %s: %s", p.Source.Source.Path, note, advice)
}
