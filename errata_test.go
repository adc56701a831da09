package microscale_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// The tests of this file, errata_blocks_test.go and errata_hardware_test.go check the rows of
// docs/errata.md.

// TestErrataNamesTests: every row names a test of these files, and every test has a row.
func TestErrataNamesTests(t *testing.T) {
	files, err := filepath.Glob("errata*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{} // tests; whether a row names them
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != t.Name() {
				named[f.Name.Name] = false
			}
		}
	}
	for _, row := range errata(t) {
		test := strings.Trim(row[3], "`")
		if _, ok := named[test]; !ok {
			t.Errorf("no test %s, of the row %q", test, row[1])
			continue
		}
		named[test] = true
	}
	for test, ok := range named {
		if !ok {
			t.Errorf("no row of docs/errata.md names %s", test)
		}
	}
}

// rowwise quantizes one row with the default quantizer.
func rowwise(t *testing.T, f quant.Format, x ...float32) *quant.Tensor {
	t.Helper()
	w, err := quant.Quantizer{Format: f}.Rowwise(tensor.Of(1, len(x), x), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// encode returns the values of x·scale rounded to E4M3.
func encode(scale float32, x ...float32) []float32 {
	values := make([]float32, len(x))
	for i, v := range x {
		values[i] = format.E4M3.Decode(format.E4M3.Encode(v * scale))
	}
	return values
}

func expect(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func TestFloatToE8M0(t *testing.T) {
	for _, tc := range []struct {
		x    float32
		code uint32
	}{
		{float32(math.NaN()), 0xff}, {float32(math.Inf(1)), 0xfe}, {0, 0}, {0x1p-127, 0}, {0x1.000004p-127, 1},
		{0x1p127, 0xfe}, {math.MaxFloat32, 0xfe}, {1, 127}, {1.0000001, 128},
	} {
		if got := format.E8M0.EncodeWith(tc.x, format.Conversion{Rounding: format.Up}, 0); got != tc.code {
			t.Errorf("%g becomes %#x, want %#x", tc.x, got, tc.code)
		}
	}
}

func TestMixedMagnitudes(t *testing.T) {
	large, small := []float32{100, 95, 103}, []float32{0.01, 0.02, 0.015}
	const scale = 448.0 / 103
	expect(t, "large values", encode(scale, large...), []float32{448, 416, 448})
	for i, got := range encode(scale, small...) {
		if e := math.Abs(float64(got/scale/small[i] - 1)); e > 0.043 {
			t.Errorf("small value %g has a relative error of %.3f", small[i], e)
		}
	}
	expect(t, "small values with a separate scale", encode(448/0.02, small...), []float32{224, 448, 320})

	expect(t, "MXFP8 of the large values", rowwise(t, quant.MXFP8, large...).Dequantize(1).Data, []float32{96, 96, 104})
	if w := rowwise(t, quant.MXFP8, large...); w.Scales[0] != 127-2 {
		t.Errorf("the scale of the large values is 2^%d, want 2^-2", int(w.Scales[0])-127)
	}
	if w := rowwise(t, quant.MXFP8, small...); w.Scales[0] != 127-14 {
		t.Errorf("the scale of the small values is 2^%d, want 2^-14", int(w.Scales[0])-127)
	}
}

func TestStorage(t *testing.T) {
	for f, bytes := range map[string]float64{"mxfp8": 1.03125, "mxfp6-e3m2": 0.78125, "mxfp4": 0.53125, "nvfp4": 0.5625,
		"fp8-vec128": 1.03125} {
		row, err := quant.Lookup(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := row.BitsPerElement() / 8; got != bytes {
			t.Errorf("%s takes %g bytes an element, want %g", f, got, bytes)
		}
	}
	if one := quant.MXFP8.BitsPerElement() / quant.BF16.BitsPerElement(); one != 0.515625 || 2*one != 1.03125 {
		t.Errorf("MXFP8 takes %g of BF16's memory in one direction and %g in both", one, 2*one)
	}
	near(t, "BF16 over MXFP6", quant.BF16.BitsPerElement()/quant.MXFP6E3M2.BitsPerElement(), 2.56, 0.01)
	near(t, "BF16 over MXFP4", quant.BF16.BitsPerElement()/quant.MXFP4.BitsPerElement(), 3.76, 0.01)
	bytes := quant.MXFP8.BitsPerElement() / 8
	corrects(t, "1.02 bytes per element", fmt.Sprint(bytes))
	corrects(t, "1.125 bytes per element", fmt.Sprintf("%g; %g for rowwise and columnwise", bytes, 2*bytes))
	corrects(t, "1.125 GB for a billion", fmt.Sprintf("%g GB", bytes))
	corrects(t, "half of BF16's memory", fmt.Sprintf("%.1f %% for one copy, %.0f %%", 50*bytes, 100*bytes))
	corrects(t, "MXFP6 0.81", fmt.Sprintf("%g and %g, %.2f and %.2f times", quant.MXFP6E3M2.BitsPerElement()/8, quant.MXFP4.BitsPerElement()/8,
		16/quant.MXFP6E3M2.BitsPerElement(), 16/quant.MXFP4.BitsPerElement()), fmt.Sprintf("%g is NVFP4", quant.NVFP4.BitsPerElement()/8))
}

func TestRange(t *testing.T) {
	if v := format.E8M0.Smallest() * format.E4M3.Smallest(); v != 0x1p-136 {
		t.Errorf("the smallest value of MXFP8 is %g, want 2^-136", v)
	}
	corrects(t, "effective range 2^-134", "2^-136 … 448·2^127")
	corrects(t, "clamped to 1e-12", "down to 2^-136")
	if v := float64(format.E8M0.Max()) * float64(format.E4M3.Max()); v != 448*0x1p127 {
		t.Errorf("the largest value of MXFP8 is %g, want 448·2^127", v)
	}
	if w := rowwise(t, quant.MXFP8, 0x1p-130).Dequantize(1); w.Data[0] != 0x1p-130 {
		t.Errorf("2^-130 becomes %g in a separate block", w.Data[0])
	}
	if v := format.E4M3.SmallestNormal(); v != 0.015625 {
		t.Errorf("the smallest normal of E4M3 is %g", v)
	}
	corrects(t, "smallest normal, 0.00195", "2^-6 = 0.015625")
	orders := func(low float32) float64 { return math.Log10(float64(format.E4M3.Max()) / float64(low)) }
	corrects(t, "5.2 orders of magnitude", fmt.Sprintf("%.2f, from 2^-9 to 448", orders(format.E4M3.Smallest())),
		fmt.Sprintf("span %.2f", orders(format.E4M3.SmallestNormal())))
	if v := format.E4M3.Smallest(); v != 0.001953125 {
		t.Errorf("the smallest value of E4M3 is %g", v)
	}
	span := func(s *format.Scalar) int {
		return s.MaxExponent() - math.Ilogb(float64(s.Smallest()))
	}
	if e5m2, bf16 := span(format.E5M2), span(format.BF16); e5m2 != 31 || bf16 != 260 {
		t.Errorf("E5M2 spans %d binades and BF16 %d, want 31 and 260 between the smallest and the largest", e5m2, bf16)
	}
}

// TestFusedTraffic counts the bytes of an element, without those of scales and amaxes, which are few.
func TestFusedTraffic(t *testing.T) {
	const x = 4 // FP32
	code := quant.MXFP8.Element.Bits() / 8
	fused := x + code                  // read, write codes
	passes := x + (x + x) + (x + code) // amax; scale; cast
	corrects(t, "more than 10 times as fast as unfused",
		fmt.Sprintf("move %d bytes per FP32 element for MXFP8 where a fused one moves %d: %.1f times as many", passes, fused,
			float64(passes)/float64(fused)))
}

func TestE4M3TopBinade(t *testing.T) {
	for code := uint32(0x78); code <= 0x7e; code++ {
		if got, want := format.E4M3.Decode(code), float32(256+32*(code-0x78)); got != want {
			t.Errorf("%#x is %g, want %g", code, got, want)
		}
	}
	if !format.E4M3.IsNaN(0x7f) || !format.E4M3.IsNaN(0xff) || format.E4M3.HasInf() {
		t.Error("0x7f and 0xff are NaN, and nothing is Inf")
	}
}

func TestWorkedBlock(t *testing.T) {
	x := []float32{0.1, 0.25, 0.5, 1.2, 3.8, 12, 45, 150}
	w := rowwise(t, quant.MXFP8, x...)
	if w.Scales[0] != 127-1 {
		t.Errorf("the scale of amax 150 is 2^%d, want 2^-1", int(w.Scales[0])-127)
	}
	got := w.Dequantize(1).Data
	expect(t, "the block", got, []float32{0.1015625, 0.25, 0.5, 1.25, 3.75, 12, 44, 144})
	worst, at := 0.0, 0
	for i := range x {
		if e := math.Abs(float64(got[i])/float64(x[i]) - 1); e > worst {
			worst, at = e, i
		}
	}
	if at != 3 || math.Abs(worst-0.0417) > 0.0001 {
		t.Errorf("the worst error is %.4f, at %g; want 0.0417 at 1.2", worst, x[at])
	}
	corrects(t, "1.2 → 1.1875", fmt.Sprintf("1.2 → %g, and its error of %.2f %%", got[3], 100*worst))
	if w := rowwise(t, quant.MXFP8, 3600); w.Scales[0] != 127+4 {
		t.Errorf("the scale of amax 3600 is 2^%d, want 2^4", int(w.Scales[0])-127)
	}
	if got := format.E4M3.Decode(format.E4M3.Encode(0.00625)); got != 0.005859375 {
		t.Errorf("0.00625 becomes %g, want 0.005859375", got)
	}
}

// TestBlockSize: with Transformer Engine's scale rule, the SQNR of E4M3 on stationary data does
// not depend on the block size.
func TestBlockSize(t *testing.T) {
	x := tensor.New(64, 1024)
	random := quant.Stream{Seed: 1}
	for i := range x.Data { // a sum of uniforms is near enough to a Gaussian here
		for j := range 12 {
			x.Data[i] += float32(random.At(uint64(12*i+j)))*0x1p-32 - 0.5
		}
	}
	smallest, largest := math.Inf(1), math.Inf(-1)
	for _, size := range []int{8, 16, 32, 64, 128} {
		f := quant.MXFP8
		f.Block.Cols = size
		w, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		sums := measure.New(32)
		sums.Add(x.Data, w.Dequantize(0).Data)
		sqnr := sums.Result().SQNR
		smallest, largest = min(smallest, sqnr), max(largest, sqnr)
	}
	if largest-smallest > 0.01 {
		t.Errorf("SQNR moves between %.3f and %.3f dB with the block size", smallest, largest)
	}
}

func TestNibbleOrder(t *testing.T) {
	w := rowwise(t, quant.MXFP4, 0.5, 6) // codes 1 and 7 at scale 1
	if w.Codes[0] != 0x71 {
		t.Errorf("the first byte is %#x, want 0x71: the even element in the low nibble", w.Codes[0])
	}
}

func TestCurrentScaling(t *testing.T) {
	w := rowwise(t, quant.FP8Tensor, 1, -3.5, 0.25)
	if got, want := w.Scales32[0], float32(1/float64(448/float32(3.5))); got != want {
		t.Errorf("the decode scale is %g, want amax/448 = %g", got, want)
	}
	for name, want := range map[string]uint32{"fp16": 0x3653, "bf16": 0x3eca, "e4m3": 0x2d, "e5m2": 0x36} {
		s, err := format.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Encode(0.3952); got != want {
			t.Errorf("0.3952 in %s is %#x, want %#x", name, got, want)
		}
	}
}

func TestTwoDimensionalBlocks(t *testing.T) {
	if q := (quant.Quantizer{Format: quant.MXFP8x32}); !q.Format.Square() || q.Format.Block != (quant.Shape{Rows: 32, Cols: 32}) {
		t.Errorf("%s has blocks of %v", q.Format, q.Format.Block)
	}
	r := lookup(t, "mxfp8")
	if r.Weight.Shared() || r.Weight.Columnwise.Format.Square() {
		t.Error("the weights of mxfp8 have 2D blocks by default")
	}
	if err := r.Set("2d_quantization", "true"); err != nil || !r.Weight.Shared() || r.Weight.Rowwise.Format != quant.MXFP8x32 {
		t.Errorf("2D blocks: got %+v and %v, want one set of codes for both directions", r.Weight, err)
	}
}

// lookup returns a recipe of the table.
func lookup(t *testing.T, name string) recipe.Recipe {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecipes(t *testing.T) {
	for _, name := range []string{"delayed", "tensorwise", "mxfp8", "blockwise"} {
		lookup(t, name)
	}
	r := lookup(t, "mxfp8")
	if e := r.Grad.Rowwise.Format.Element; e != format.E4M3 {
		t.Errorf("gradients of mxfp8 are %s", e)
	}
	if err := r.Set("fp8_format", "e5m2"); err == nil {
		t.Error("pure E5M2 is a recipe")
	}
	for _, name := range []string{"margin", "amax_history_len"} {
		if err := r.Set(name, "4"); err == nil || !strings.Contains(err.Error(), "delayed") {
			t.Errorf("%s of mxfp8: %v", name, err)
		}
	}
	b := lookup(t, "blockwise")
	row, square := quant.Shape{Rows: 1, Cols: 128}, quant.Shape{Rows: 128, Cols: 128}
	if input, weight, grad := b.Input.Rowwise.Format.Block, b.Weight.Rowwise.Format.Block, b.Grad.Columnwise.Format.Block; input != row ||
		weight != square || grad != row {
		t.Errorf("blocks of blockwise are %v of inputs, %v of weights, %v of gradients", input, weight, grad)
	}
}

// TestDelayedEveryStep: the scale of a step depends on the amaxes up to the previous step.
func TestDelayedEveryStep(t *testing.T) {
	var scales []float32
	s := &nn.Scope{Recipe: lookup(t, "delayed")}
	s.Observer.Operand = func(o nn.Observation) {
		if o.Operand == nn.Input && o.Direction == quant.Rowwise {
			scales = append(scales, o.Quantized.Scales32[0])
		}
	}
	l := nn.NewLinear("linear", 16, 16, false)
	for step := range 4 {
		x := tensor.New(16, 16)
		x.Set(0, 0, float32(int(448)<<step)) // amax 448, 896, …: scales 1, 2, …
		if _, _, err := l.Forward(s, x); err != nil {
			t.Fatal(err)
		}
		l.EndForward(s)
	}
	expect(t, "decode scales", scales, []float32{1, 1, 2, 4})
}

func TestBlocksWithinRows(t *testing.T) {
	x := tensor.New(2, 33)
	x.Set(0, 32, 448*1024)
	x.Set(1, 0, 1)
	w, err := quant.Quantizer{Format: quant.MXFP8}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if rows, cols := w.ScaleShape(); rows != 2 || cols != 2 {
		t.Errorf("two rows of 33 have %d×%d scales", rows, cols)
	}
	if got := w.Dequantize(1).At(1, 0); got != 1 {
		t.Errorf("behind a large value in the row before, 1 becomes %g", got)
	}
}
