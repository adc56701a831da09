package main

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// An explanation is what one profile makes of a row of values. The codes and
// scales are the quantizer's own; the steps between are worked out beside it.
type explanation struct {
	Profile    string        `json:"profile"`
	Defined    bool          `json:"defined"`              // whether the profile has the format
	ScaleRule  string        `json:"scale_rule,omitempty"` // of e8m0 scales
	TensorAmax number        `json:"tensor_amax"`
	Global     number        `json:"global_scale"` // null where the format has none
	SQNR       number        `json:"sqnr_db"`
	Blocks     []blockDetail `json:"blocks"`

	doc       string
	quantizer quant.Quantizer
}

// A blockDetail is one block of values.
type blockDetail struct {
	First     int             `json:"first"` // index of its first value
	Amax      number          `json:"amax"`
	AmaxBits  string          `json:"amax_bits"`
	ScaleCode string          `json:"scale_code"` // float32 scales: their bits
	Scale     number          `json:"scale"`      // decode scale, without the global one
	SQNR      number          `json:"sqnr_db"`
	Elements  []elementDetail `json:"elements"`

	amax   float32
	at     int     // index of amax, -1 where there is none
	scale  float32 // as Scale
	decode float32 // global scale included
}

// An elementDetail is one value of a block.
type elementDetail struct {
	Value    number   `json:"value"`
	Quotient number   `json:"quotient"` // value / decode scale
	Lower    number   `json:"lower"`    // magnitudes of the element format on both sides of the quotient,
	Upper    number   `json:"upper"`    // the same twice where it is one, null where there is none
	Code     string   `json:"code"`
	Decoded  number   `json:"decoded"`
	Error    number   `json:"relative_error"`
	Marks    []string `json:"marks"`

	code                     uint32
	value, quotient, decoded float32
}

// explain quantizes values as one row under profile p. An amax, where given, is
// that of the tensor that the values are taken from.
func explain(p profile.Profile, f quant.Format, rule *choice[quant.ScaleRule], values []float32, amax *float32) (explanation, error) {
	e := explanation{Profile: p.Name, doc: p.Doc, TensorAmax: number(math.NaN()), Global: number(math.NaN()), SQNR: number(math.NaN()), Blocks: []blockDetail{}}
	if _, err := p.Quantizer(f); err != nil {
		return e, nil // not defined
	}
	q, err := quantizer(p, f, rule)
	if err != nil {
		return e, err
	}
	t, err := q.Rowwise(tensor.Of(1, len(values), values), quant.With{Amax: amax, Threads: 1})
	if err != nil {
		return e, err
	}
	e.Defined, e.quantizer = true, q
	e.TensorAmax = number(t.Amax)
	if f.Global {
		e.Global = number(t.Global)
	}
	if f.Scale == format.E8M0 {
		e.ScaleRule = q.Rule.String()
	}
	decoded := t.Dequantize(1).Data
	codes := make([]byte, f.StoredCols(len(values)))
	f.Element.Split(codes, t.Codes)
	width := f.Block.Cols
	if width == 0 {
		width = len(values)
	}
	whole := measure.New(width)
	whole.Add(values, decoded)
	e.SQNR = number(whole.Result().SQNR)
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
	b.Amax, b.AmaxBits = number(b.amax), hexText(math.Float32bits(b.amax), format.F32)
	index := first / max(1, t.Format.Block.Cols)
	if t.Scales32 != nil {
		b.scale = t.Scales32[index]
		b.ScaleCode = hexText(math.Float32bits(b.scale), format.F32)
	} else {
		code := uint32(t.Scales[index])
		b.scale, b.ScaleCode = t.Format.Scale.Decode(code), hexText(code, t.Format.Scale)
	}
	b.Scale = number(b.scale)
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
			Value: number(v), Quotient: number(quotient), Lower: number(lower), Upper: number(upper), Code: hexText(code, element),
			Decoded: number(decoded[i]), Error: number(relativeError(v, decoded[i])), Marks: orEmpty(m),
			code: code, value: v, quotient: quotient, decoded: decoded[i],
		})
	}
	a := measure.New(len(values))
	a.Add(values, decoded)
	b.SQNR = number(a.Result().SQNR)
	return b
}
