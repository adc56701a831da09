package difference

import (
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// TestBlocks compares a block of MXFP4 with changed ones: a neighboring code is rounding, another is a value, a scale of the
// same maximum is a rule, and a scale of another is a value.
func TestBlocks(t *testing.T) {
	newBlock := func(scale byte, codes ...byte) *quant.Tensor {
		q, err := quant.NewTensor(quant.MXFP4, 1, 32)
		if err != nil {
			t.Fatal(err)
		}
		q.Scales[0] = scale
		copy(q.Codes, codes)
		return q
	}
	a := newBlock(127, 0x36, 0x80)
	for _, tc := range []struct {
		name                                 string
		b                                    *quant.Tensor
		codes, scales, rule, rounding, other int64
	}{
		{"equal", newBlock(127, 0x36, 0x80), 0, 0, 0, 0, 0},
		{"neighbor", newBlock(127, 0x46, 0x80), 1, 0, 0, 1, 0},
		{"sign of zero", newBlock(127, 0x36, 0x00), 1, 0, 0, 1, 0},
		{"far", newBlock(127, 0x56, 0x80), 1, 0, 0, 0, 1},
		{"across zero", newBlock(127, 0x36, 0x98), 2, 0, 0, 1, 0},
		{"rule", newBlock(128, 0x24, 0x80), 2, 1, 1, 0, 0},
		{"other maximum", newBlock(128, 0x36, 0x80), 0, 1, 0, 0, 1},
	} {
		var s tileSums
		compareBlocks(&s, a, tc.b, true)
		if s.blocks != 1 || s.codes != tc.codes || s.scales != tc.scales || s.rule != tc.rule || s.rounding != tc.rounding ||
			s.other != tc.other {
			t.Errorf("%s: %+v", tc.name, s)
		}
	}
	for _, tc := range []struct {
		f    *format.Scalar
		x, y byte
		want bool
	}{{format.S4, 0xf, 0, true}, {format.S4, 0x8, 0x7, false}, {format.E4M3, 0x7e, 0x7d, true}, {format.E4M3, 0x81, 0x01, false},
		{format.E2M1, 0x8, 0x1, true}} {
		if neighbors(tc.f, tc.x, tc.y) != tc.want {
			t.Errorf("%s: codes %#x and %#x: neighbors is %t", tc.f, tc.x, tc.y, !tc.want)
		}
	}
}

// TestCauses: the cause of a weight follows from its blocks.
func TestCauses(t *testing.T) {
	same := &checkpoint.Weight{Format: quant.MXFP4}
	for _, tc := range []struct {
		s    tileSums
		want Cause
	}{
		{tileSums{values: 3, codes: 3, rounding: 2, rule: 1}, Rounding},
		{tileSums{values: 3, codes: 3, scales: 2, rounding: 1, rule: 2}, Rule},
		{tileSums{values: 3, codes: 3, other: 2, rule: 2}, Values},
		{tileSums{values: 3}, Global},
	} {
		w := Weight{}
		tc.s.report(pair{a: same, b: same}, &w)
		if w.Cause != tc.want {
			t.Errorf("%+v: cause %s, want %s", tc.s, w.Cause, tc.want)
		}
	}
}
