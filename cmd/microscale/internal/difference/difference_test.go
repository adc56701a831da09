package difference

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
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
	one, two := &checkpoint.Weight{Format: quant.NVFP4, Global: 1}, &checkpoint.Weight{Format: quant.NVFP4, Global: 2}
	same, global, dense := pair{a: one, b: one}, pair{a: one, b: two}, &checkpoint.Weight{Dtype: safetensors.F32}
	for _, tc := range []struct {
		s    tileSums
		p    pair
		want Cause
	}{
		{tileSums{values: 3, codes: 3, rounding: 2, rule: 1}, same, Rounding},
		{tileSums{values: 3, codes: 3, scales: 2, rounding: 1, rule: 2}, same, Rule},
		{tileSums{values: 3, codes: 3, other: 2, rule: 2}, same, Values},
		{tileSums{values: 3}, same, Values},
		{tileSums{values: 3}, global, Global},
		{tileSums{}, pair{a: one, b: one, layout: true}, Layout},
		{tileSums{values: 3}, pair{a: one, b: one, layout: true}, Product},
		{tileSums{}, same, Nothing},
		{tileSums{codes: 2, scales: 1}, same, Recoded},
		{tileSums{values: 3, codes: 3, rule: 1, rounding: 1}, global, Global},
		{tileSums{values: 3, codes: 3, rule: 1, rounding: 2}, global, Rounding},
		{tileSums{values: 3, codes: 3, rounding: 2, other: 1}, same, Rounding},
		{tileSums{values: 3}, pair{a: one, b: &checkpoint.Weight{Format: quant.MXFP4}}, Format},
		{tileSums{}, pair{a: one, b: &checkpoint.Weight{Format: quant.MXFP4}}, Recoded},
		{tileSums{values: 3}, pair{a: dense, b: dense}, Values},
		{tileSums{}, pair{a: dense, b: dense}, Nothing},
	} {
		w := Weight{}
		tc.s.blocks = 7
		tc.s.report(tc.p, &w)
		if w.Cause != tc.want {
			t.Errorf("%+v: cause %s, want %s", tc.s, w.Cause, tc.want)
		}
		if w.Values != tc.s.values || w.Codes != tc.s.codes || w.Scales != tc.s.scales || w.Blocks != 7 || w.rule != tc.s.rule ||
			w.rounding != tc.s.rounding || w.other != tc.s.other || w.Global != (tc.p.b == two) {
			t.Errorf("%+v: %+v", tc.s, w)
		}
	}
}

// TestCounts compares the counts of codes, scales and blocks with those of single elements, in blocks of several rows, partial blocks and
// one block for all.
func TestCounts(t *testing.T) {
	const rows, cols = 40, 176
	for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXFP6E2M3, quant.MXFP8x32, quant.FP8Block, quant.FP8Row,
		quant.FP8Tensor} {
		x, y := tensor.New(rows, cols), tensor.New(rows, cols)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
			if y.Data[i] = x.Data[i]; r.IntN(99) == 0 {
				y.Data[i] *= float32(1 + 2*r.Float64())
			}
		}
		q, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := quant.Quantizer{Format: f}.Rowwise(y, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		var s tileSums
		compareBlocks(&s, q, o, q.Global == o.Global)
		want := tileSums{}
		a, b, width := unpacked(q), unpacked(o), f.PaddedCols(cols)
		for i := range rows {
			for j := range cols {
				if a[i*width+j] != b[i*width+j] {
					want.codes++
				}
			}
		}
		high, wide := q.ScaleShape()
		want.blocks = int64(high * wide)
		for i := range high * wide {
			if q.Scales32 != nil && q.Scales32[i] != o.Scales32[i] || q.Scales32 == nil && q.Scales[i] != o.Scales[i] {
				want.scales++
			}
		}
		if s.codes != want.codes || s.scales != want.scales || s.blocks != want.blocks || want.codes == 0 {
			t.Errorf("%s: %+v, want %+v", f, s, want)
		}
	}
	if !near(3, 2) || near(3.1, 2) || !near(2, 3) {
		t.Error("maxima within half of each other are near, others are not")
	}
	if n := elements([]int64{2, 3, 4}); n != 24 {
		t.Errorf("%d elements, want 24", n)
	}
}

// TestUncompared: what was not compared is null, and blank in the table.
func TestUncompared(t *testing.T) {
	r := Report{Weights: []Weight{{Name: "w", A: "nvfp4", B: "mxfp8", Cause: Format, Elements: 8, Values: 4,
		Result: measure.Result{Elements: 8, SQNR: 20}}, {Name: "v", A: "f32", Cause: Alone, Elements: 8}}}
	var out strings.Builder
	if err := r.Print(&out, "a", "b", true, true); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"codes": null`); n != 2 {
		t.Errorf("%d of 2 codes are null: %s", n, out.String())
	}
	for _, name := range []string{`"values": null`, `"sqnr_db": null`, `"values": 4`, `"sqnr_db": 20`} {
		if strings.Count(out.String(), name) != 1 {
			t.Errorf("%s lacks one %s", out.String(), name)
		}
	}
	out.Reset()
	if err := r.Print(&out, "a", "b", true, false); err != nil || !strings.Contains(out.String(), "format                     50%") {
		t.Errorf("error %v: %s", err, out.String())
	}
}

// TestBytes: tensors of integers differ by elements, not bytes.
func TestBytes(t *testing.T) {
	if n := differentElements([]byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{0, 0, 3, 4, 5, 6, 7, 8}, 4); n != 1 {
		t.Errorf("%d elements of 4 bytes differ, want 1", n)
	}
	if n := differentElements([]byte{1, 2, 3}, []byte{0, 0, 3}, 0); n != 2 {
		t.Errorf("%d bytes differ, want 2", n)
	}
}
