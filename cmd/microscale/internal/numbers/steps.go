package numbers

import (
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// formulas gives the formulas of each quant.Arithmetic for a global scale, a block
// scale below it, and an FP32 or BF16 scale. MAX is the half range of the element format, SMAX
// the maximum of the scale format.
var formulas = []struct{ global, block, fp32 string }{
	quant.EncodeFirst:      {"1/E with E = SMAX·MAX/amax of the tensor", "amax·(E·(1/MAX))", "1/(MAX/amax)"},
	quant.EncodeFirst64:    {"amax of the tensor/(SMAX·MAX)", "amax/MAX/global, at least 2⁻⁶", "1/(MAX/amax), divided in float64"},
	quant.DecodeFirst:      {"amax of the tensor/(SMAX·MAX)", "amax/(MAX·global)", "amax/MAX"},
	quant.DecodeFirstBF16:  {"1/E with E = bf16(SMAX·MAX·bf16(1/amax of the tensor))", "E·bf16(amax/MAX)", "bf16(amax/MAX)"},
	quant.BlockOnly:        {"fixed: only blocks have a scale", "amax/MAX, ties up", "amax/MAX"},
	quant.BlockNearest:     {"fixed: only blocks have a scale", "amax/MAX", "amax/MAX"},
	quant.HalfScale:        {"fixed: only blocks have a scale", "", "64·fp16(amax/(64·MAX))"},
	quant.DecodeFirstTyped: {"amax of the tensor/(SMAX·MAX)", "amax/(MAX·global)", "amax/MAX"},
}

// globalSteps returns the steps to the global scale.
func (e *Explanation) globalSteps() []show.Step {
	return []show.Step{
		{"tensor", "amax " + shortText(float32(e.TensorAmax))},
		{"global", fmt.Sprintf("%s = %s", shortText(float32(e.Global)), e.limits(formulas[e.quantizer.Arithmetic].global))},
	}
}

// steps returns the steps to the scale of block b.
func (e *Explanation) steps(b *blockDetail) []show.Step {
	steps := []show.Step{{"amax", amaxText(b)}}
	q := &e.quantizer
	switch q.Format.Scale {
	case format.E8M0:
		steps = append(steps, show.Step{"rule", q.Rule.String() + ": " + ruleText(q, b)})
		scale := shortText(b.scale)
		if b.scale == b.scale {
			scale = ExponentText(b.scale) + " = " + scale
		}
		return append(steps, show.Step{"scale", fmt.Sprintf("%s, code %s", scale, b.ScaleCode)})
	case format.F32, format.BF16:
		text := formulas[q.Arithmetic].fp32
		if q.PowerOfTwo {
			text += ", as a power of two"
		}
		if q.Format.Scale == format.BF16 && !strings.HasPrefix(text, "bf16(") {
			text = "bf16(" + text + ")"
		}
		return append(steps, show.Step{"scale", fmt.Sprintf("%s = %s, bits %s", shortText(b.scale), e.limits(text), b.ScaleCode)})
	}
	steps = append(steps, show.Step{"scale", fmt.Sprintf("%s = %s(%s), code %s", shortText(b.scale), q.Format.Scale,
		e.limits(formulas[q.Arithmetic].block), b.ScaleCode)})
	return append(steps, show.Step{"", fmt.Sprintf("%s = scale × global", shortText(b.decode))})
}

// limits replaces MAX and SMAX in a formula.
func (e *Explanation) limits(formula string) string {
	f := e.quantizer.Format
	return strings.NewReplacer("SMAX", shortText(f.Scale.Max()), "MAX", shortText(f.Element.HalfRange())).Replace(formula)
}

func amaxText(b *blockDetail) string {
	switch {
	case b.at < 0:
		return "none: all values are NaN"
	case b.amax == 0:
		return "0"
	}
	text := shortText(b.amax)
	if significand, ok := scientific(b.amax); ok {
		text += " = " + significand
	}
	return fmt.Sprintf("%s, value %d, bits %s", text, b.at, b.AmaxBits)
}

// scientific returns a normal number as m·2^e.
func scientific(v float32) (text string, ok bool) {
	if v < math.SmallestNonzeroFloat32*(1<<23) || v > math.MaxFloat32 {
		return "", false
	}
	return fmt.Sprintf("%s·%s", shortText(mantissa(v)), ExponentText(v)), true
}

// mantissa returns m where v = m·2^e, 1 ≤ m < 2, of a normal v.
func mantissa(v float32) float32 { return float32(math.Ldexp(float64(v), -exponentOf(v))) }

// ruleText explains the scale of b by the rule of q: the power of two given by the
// exponents, and why it is doubled or not.
func ruleText(q *quant.Quantizer, b *blockDetail) string {
	element := q.Format.Element
	largest, _ := scientific(element.Max())
	_, normal := scientific(b.amax)
	switch {
	case b.scale != b.scale:
		return "the block holds NaN or Inf, so the scale is NaN"
	case b.amax == 0:
		return "a block of zeros has the minimum scale"
	case !normal && b.amax <= math.MaxFloat32:
		return "amax is below 2⁻¹²⁶"
	case !normal:
		return "amax is Inf, so the scale is the maximum"
	}
	base := exponentOf(b.amax) - element.MaxExponent()
	if q.Rule == quant.Round {
		return roundText(q, b, base)
	}
	text := fmt.Sprintf("%s/%s = %s", powerOfTwo(exponentOf(b.amax)), powerOfTwo(element.MaxExponent()), powerOfTwo(base))
	condition, doubled := "", false
	if r := roundsUp[q.Rule]; r != nil {
		condition, doubled = r(q, mantissa(b.amax), largest)
	}
	if doubled && exponentOf(b.scale) == base { // RatioCeil on rounded arithmetic
		condition, doubled = fmt.Sprintf("amax·float32(1/%s) rounds to %s", shortText(element.Max()), powerOfTwo(base)), false
	}
	switch {
	case doubled:
		text += ", doubled: " + condition
		base++
	case condition == "":
		text += ", never doubled"
	default:
		text += ", not doubled: " + condition
	}
	if base < -format.E8M0.Bias {
		text += "; the minimum scale is " + powerOfTwo(-format.E8M0.Bias)
	}
	return text
}

// roundText is ruleText for the rule Round, which may halve.
func roundText(q *quant.Quantizer, b *blockDetail, base int) string {
	m, from := mantissa(b.amax), q.RoundsFrom()
	text := fmt.Sprintf("%s/%s = %s", powerOfTwo(exponentOf(b.amax)), powerOfTwo(q.Format.Element.MaxExponent()), powerOfTwo(base))
	limit := shortText(mantissa(q.Format.Element.Max())) + "/√2"
	if m >= from {
		text += fmt.Sprintf(", not halved: %s > %s", shortText(m), limit)
	} else {
		text += fmt.Sprintf(", halved: %s < %s", shortText(m), limit)
		base--
	}
	if base < -format.E8M0.Bias {
		text += "; the minimum scale is " + powerOfTwo(-format.E8M0.Bias)
	}
	return text
}

// roundsUp returns the condition under which a rule doubles the scale, and whether it
// holds. m is the mantissa of amax. Floor never doubles.
var roundsUp = map[quant.ScaleRule]func(q *quant.Quantizer, m float32, largest string) (condition string, holds bool){
	quant.RatioCeil: func(q *quant.Quantizer, m float32, largest string) (string, bool) {
		limit := mantissa(q.Format.Element.Max())
		relation, holds := "≤", m > limit
		if holds {
			relation = ">"
		}
		return fmt.Sprintf("%s %s %s, the mantissa of the maximum of %s, %s", shortText(m), relation, shortText(limit), q.Format.Element,
			largest), holds
	},
	quant.Ceil: func(_ *quant.Quantizer, m float32, _ string) (string, bool) {
		if m > 1 {
			return fmt.Sprintf("%s > 1", shortText(m)), true
		}
		return "amax is a power of two", false
	},
	quant.Even: func(q *quant.Quantizer, m float32, _ string) (string, bool) {
		bits := q.EvenBits()
		unit := math.Ldexp(1, -bits)
		rounded := math.Floor(float64(m)/unit+0.5) * unit
		return fmt.Sprintf("%s rounds to %g at %d bits", shortText(m), rounded, bits), rounded >= 2
	},
}
