package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
)

// foreignTensors match tensors of unsupported quantizations.
var foreignTensors = []struct {
	name *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`\.(qweight|qzeros)$`), "GPTQ or AWQ"},
	{regexp.MustCompile(`\.(SCB|absmax|quant_map)$|\.quant_state\.bitsandbytes__`), "bitsandbytes"},
	{regexp.MustCompile(`\.W_q$`), "HQQ"},
}

// rejectForeign returns an error if the weights are an adapter, or of an unsupported
// quantization.
func rejectForeign(m *checkpoint.Model) error {
	if name := m.Adapter(); name != "" {
		return fmt.Errorf("%s: an adapter (%s), not a model: merge it into its base model, and quantize the result", m.Source.Path, name)
	}
	for _, f := range foreignTensors {
		if i := slices.IndexFunc(m.Weights, func(w *checkpoint.Weight) bool { return f.name.MatchString(w.Name) }); i >= 0 {
			return fmt.Errorf("%s: already quantized by %s (%s), which is not supported: start from the original checkpoint", m.Source.Path, f.what,
				m.Weights[i].Name)
		}
	}
	return nil
}

// rejectQuantized returns an error if any weight of the source is quantized.
func rejectQuantized(m *checkpoint.Model) error {
	path := m.Source.Path
	if m.Simulated() && m.Quantized() == 0 {
		return because(ErrQuantized, fmt.Errorf("%s: its weights are rounded by simulated quantization: start from the original checkpoint",
			path))
	}
	if m.Convention != nil {
		return because(ErrQuantized, fmt.Errorf("%s: already quantized (%s, %s): start from the original checkpoint", path, m.Convention,
			quantizedTypes(m)))
	}
	if len(m.Decoded) > 0 && len(m.Unread) == 0 {
		return because(ErrQuantized, fmt.Errorf("%s: already quantized (gguf, %s): start from the original checkpoint", path, quantizedTypes(m)))
	}
	if len(m.Unread) > 0 {
		return fmt.Errorf("%s: already quantized (gguf, %s), in unsupported types: start from the original checkpoint", path, quantizedTypes(m))
	}
	if problems := lasting(m); len(problems) > 0 {
		return fmt.Errorf("%s: already quantized in an unsupported way: %s", path, problems[0])
	}
	return nil
}

// quantizedTypes lists the formats of quantized weights and the unsupported types, in
// decreasing order of their weights.
func quantizedTypes(m *checkpoint.Model) string {
	count := map[string]int{}
	for _, w := range m.Weights {
		if w.Quantized() {
			count[w.FormatName()]++
		}
	}
	for _, t := range slices.Concat(m.Unread, m.Decoded) {
		count[strings.ToLower(t)]++
	}
	if len(count) == 0 {
		return "nothing"
	}
	return strings.Join(byCount(count), ", ")
}

// lasting returns the problems that a conversion does not repair.
func lasting(m *checkpoint.Model) []checkpoint.Problem {
	return slices.DeleteFunc(slices.Clone(m.Problems), checkpoint.Problem.Harmless)
}

// misread returns a note of what clients would reject or misread in the source; "" if there is
// nothing.
func misread(m *checkpoint.Model) string {
	problems := slices.DeleteFunc(slices.Clone(m.Problems), func(p checkpoint.Problem) bool { return !p.Misread })
	if len(problems) == 0 {
		return ""
	}
	return "in the source, " + first(problems)
}

// first returns the first of some problems, and their number if there are more.
func first(problems []checkpoint.Problem) string {
	if len(problems) == 1 {
		return problems[0].String()
	}
	return fmt.Sprintf("%s (the first of %d problems that inspect lists)", problems[0], len(problems))
}

// larger returns a note if the tensors of the result take more bytes than the source's. If the
// cause is that quantized weights become values, unless excluded, why is the first of them.
func (p *Plan) larger() (note string, why *decision) {
	var before, after, values int64
	n := 0
	for i, d := range p.decisions {
		before += d.StoredBytes()
		after += d.bytes()
		if d.action == Decode && d.Quantized() && d.reason.cause != causeUser {
			values += d.bytes() - d.StoredBytes()
			n++
			if why == nil {
				why = &p.decisions[i]
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
	return fmt.Sprintf("%s, because quantized weights (%d) become %s, the first %s (%s)", note, n, p.formatName(*why), why.Name, why.reason),
		why
}

// admitLarger adds the note of a larger result to the plan, as the first one. It returns an
// error if the default convention is the cause, which the user did not ask for: convention plain
// would quantize the weights.
func (p *Plan) admitLarger(s selection, asked bool) error {
	note, why := p.larger()
	if note == "" {
		return nil
	}
	p.Notes = slices.Insert(p.Notes, 0, note)
	plain := checkpoint.Plain()
	if why == nil || asked {
		return nil
	}
	q, reason := s.decide(why.Weight, plain)
	if reason.cause != noCause {
		return nil
	}
	return fmt.Errorf("%s: %s: convention %s stores them in %s; or choose convention %s explicitly to accept it", p.source.Source.Path, note,
		plain, q.Format, p.convention)
}
