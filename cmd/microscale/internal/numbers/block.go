package numbers

import (
	"math"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// An Explanation is a row of values quantized by one profile. The codes and scales are
// those of the quantizer; the steps in between are computed here.
type Explanation struct {
	Profile    string        `json:"profile"`
	Defined    bool          `json:"defined"`              // the profile supports the format
	ScaleRule  string        `json:"scale_rule,omitempty"` // of e8m0 scales
	TensorAmax show.Number   `json:"tensor_amax"`
	Global     show.Number   `json:"global_scale"` // null without a global scale
	SQNR       show.Number   `json:"sqnr_db"`
	Blocks     []blockDetail `json:"blocks"`

	doc       string
	quantizer quant.Quantizer
}

// A blockDetail is one block of values.
type blockDetail struct {
	First     int             `json:"first"` // index of its first value
	Amax      show.Number     `json:"amax"`
	AmaxBits  string          `json:"amax_bits"`
	ScaleCode string          `json:"scale_code"` // bits of an FP32 scale
	Scale     show.Number     `json:"scale"`      // decode scale, without the global scale
	SQNR      show.Number     `json:"sqnr_db"`
	Elements  []elementDetail `json:"elements"`

	amax   float32
	at     int     // index of amax, -1 if all values are NaN
	scale  float32 // like Scale
	decode float32 // with the global scale
}

// An elementDetail is one value of a block.
type elementDetail struct {
	Value    show.Number `json:"value"`
	Quotient show.Number `json:"quotient"` // value / decode scale
	Lower    show.Number `json:"lower"`    // the nearest magnitudes of the element format below and above the quotient:
	Upper    show.Number `json:"upper"`    // equal if it is exact, null beyond the format
	Code     string      `json:"code"`
	Decoded  show.Number `json:"decoded"`
	Error    show.Number `json:"relative_error"`
	Marks    []string    `json:"marks"`

	code                     uint32
	value, quotient, decoded float32
}

// ExplainAll explains values with each of the profiles, as explain does. Without profiles it takes the default, but for formats that it
// does not define.
func ExplainAll(profiles []profile.Profile, f quant.Format, rule *quant.ScaleRule, values []float32, amax *float32) ([]Explanation, error) {
	switch {
	case len(values) == 0:
		return nil, show.Misuse("no values: give some, such as 0.1 -0.2 3.5")
	case amax != nil && !f.NeedsAmax():
		return nil, show.Misuse("--amax: %s has no tensor scale; omit the flag", f)
	case amax != nil && !(*amax >= 0):
		return nil, show.Misuse("--amax: got %v, want a number of 0 or more", *amax)
	case len(profiles) == 0:
		profiles = []profile.Profile{profile.For(f)}
	}
	if len(profiles) == 1 {
		if _, err := profiles[0].Quantizer(f); err != nil {
			return nil, show.Misuse("%s", err)
		}
	}
	explanations := make([]Explanation, len(profiles))
	for i, p := range profiles {
		var err error
		if explanations[i], err = explain(p, f, rule, values, amax); err != nil {
			return nil, err
		}
	}
	return explanations, nil
}

// explain quantizes values as one row by the rules of profile p. A rule that is not nil
// overrides that of p. amax is that of the tensor that holds the values, nil for that
// of the values.
func explain(p profile.Profile, f quant.Format, rule *quant.ScaleRule, values []float32, amax *float32) (Explanation, error) {
	e := Explanation{Profile: p.Name, doc: p.Doc, TensorAmax: show.Number(math.NaN()), Global: show.Number(math.NaN()),
		SQNR: show.Number(math.NaN()), Blocks: []blockDetail{}}
	q, err := p.Quantizer(f)
	if err != nil {
		return e, nil // not supported
	}
	if rule != nil {
		q.Rule = *rule
	}
	t, err := q.Rowwise(tensor.Of(1, len(values), values), quant.With{Amax: amax, Threads: 1})
	if err != nil {
		return e, err
	}
	e.Defined, e.quantizer = true, q
	e.TensorAmax = show.Number(t.Amax)
	if f.Global {
		e.Global = show.Number(t.Global)
	}
	if f.Scale == format.E8M0 {
		e.ScaleRule = q.Rule.String()
	}
	decoded := t.Dequantize(1).Data
	codes := make([]byte, f.PaddedCols(len(values)))
	f.Element.Split(codes, t.Codes)
	width := f.Block.Cols
	if width == 0 {
		width = len(values)
	}
	whole := measure.New(width)
	whole.Add(values, decoded)
	e.SQNR = show.Number(whole.Result().SQNR)
	for i := 0; i < len(values); i += width {
		j := min(i+width, len(values))
		b := explainBlock(t, i, values[i:j], decoded[i:j], codes[i:j])
		e.Blocks = append(e.Blocks, b)
	}
	return e, nil
}

func explainBlock(t *quant.Tensor, first int, values, decoded []float32, codes []byte) blockDetail {
	element := t.Format.Element
	b := blockDetail{First: first, at: -1, decode: t.Scale(0, first)}
	for i, v := range values {
		if m := float32(math.Abs(float64(v))); m > b.amax || b.at < 0 && m == m {
			b.amax, b.at = m, first+i
		}
	}
	b.Amax, b.AmaxBits = show.Number(b.amax), hexText(math.Float32bits(b.amax), format.F32)
	index := first / max(1, t.Format.Block.Cols)
	if t.Scales32 != nil {
		b.scale = t.Scales32[index]
		b.ScaleCode = hexText(math.Float32bits(b.scale)>>(format.F32.Bits()-t.Format.Scale.Bits()), t.Format.Scale)
	} else {
		code := uint32(t.Scales[index])
		b.scale, b.ScaleCode = t.Format.Scale.Decode(code), hexText(code, t.Format.Scale)
	}
	b.Scale = show.Number(b.scale)
	for i, v := range values {
		code := uint32(codes[i])
		quotient := v / b.decode
		lower, upper := neighbors(quotient, element)
		var m []string
		switch {
		case quotient != quotient && v == v: // the scale is NaN or zero
		case quotient == 0 && v != 0:
			m = []string{"flushed"}
		default:
			m = marks(quotient, code, element)
		}
		if first+i == b.at && b.amax > 0 {
			m = append([]string{"amax"}, m...)
		}
		b.Elements = append(b.Elements, elementDetail{
			Value: show.Number(v), Quotient: show.Number(quotient), Lower: show.Number(lower), Upper: show.Number(upper),
			Code:    hexText(code, element),
			Decoded: show.Number(decoded[i]), Error: show.Number(relativeError(v, decoded[i])), Marks: show.OrEmpty(m),
			code: code, value: v, quotient: quotient, decoded: decoded[i],
		})
	}
	a := measure.New(len(values))
	a.Add(values, decoded)
	b.SQNR = show.Number(a.Result().SQNR)
	return b
}
