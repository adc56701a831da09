package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestFormats checks every row of the table against what is written of it.
func TestFormats(t *testing.T) {
	written := map[string]bool{}
	for _, tc := range []struct {
		name                         string
		bits                         float64 // per element
		perTensor, needsAmax, square bool
		byteScales                   bool
		scaleRows, scaleCols         int // of 130×70
		stored                       int // width of 70 columns
	}{
		{"mxfp8", 8.25, false, false, false, true, 130, 3, 96},
		{"mxfp8-e5m2", 8.25, false, false, false, true, 130, 3, 96},
		{"mxfp6-e3m2", 6.25, false, false, false, true, 130, 3, 96},
		{"mxfp6-e2m3", 6.25, false, false, false, true, 130, 3, 96},
		{"mxfp4", 4.25, false, false, false, true, 130, 3, 96},
		{"mxint8", 8.25, false, false, false, true, 130, 3, 96},
		{"nvfp4", 4.5, false, true, false, true, 130, 5, 80},
		{"fp8-tensor", 8, true, true, true, false, 1, 1, 70},
		{"fp8-row", 8, false, false, false, false, 130, 1, 70},
		{"fp8-vec128", 8.25, false, false, false, false, 130, 1, 128},
		{"fp8-block128", 8.001953125, false, false, true, false, 2, 1, 128},
		{"mxfp8-32x32", 8.0078125, false, false, true, true, 5, 3, 96},
		{"nvfp4-16x16", 4.03125, false, true, true, true, 9, 5, 80},
		{"int4-g32", 4.5, false, false, false, false, 130, 3, 96},
		{"int4-g64", 4.25, false, false, false, false, 130, 2, 128},
		{"int4-g128", 4.125, false, false, false, false, 130, 1, 128},
		{"int8-g128", 8.125, false, false, false, false, 130, 1, 128},
		{"int8-row", 8, false, false, false, false, 130, 1, 70},
		{"bf16", 16, false, false, true, false, 0, 0, 70},
		{"f32", 32, false, false, true, false, 0, 0, 70},
	} {
		t.Run("format="+tc.name, func(t *testing.T) {
			written[tc.name] = true
			f, err := Lookup(tc.name)
			if err != nil || f.Name != tc.name || f.String() != tc.name {
				t.Fatalf("it is %s (%v)", f, err)
			}
			if err := f.Validate(); err != nil {
				t.Error(err)
			}
			if got := f.BitsPerElement(); got != tc.bits {
				t.Errorf("%v bits per element, want %v", got, tc.bits)
			}
			for what, pair := range map[string][2]bool{
				"PerTensor": {f.PerTensor(), tc.perTensor}, "NeedsAmax": {f.NeedsAmax(), tc.needsAmax},
				"Square": {f.Square(), tc.square}, "ByteScales": {f.ByteScales(), tc.byteScales},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
				}
			}
			if r, c := f.ScaleShape(130, 70); r != tc.scaleRows || c != tc.scaleCols {
				t.Errorf("scales are %d×%d, want %d×%d", r, c, tc.scaleRows, tc.scaleCols)
			}
			if got := f.PaddedCols(70); got != tc.stored {
				t.Errorf("70 columns are stored as %d, want %d", got, tc.stored)
			}
			for _, name := range append(strings.Fields(f.Aliases), f.Name, strings.ToUpper(f.Name)) {
				if got, err := Lookup(name); err != nil || got.Name != f.Name {
					t.Errorf("%s is %s (%v)", name, got, err)
				}
			}
		})
	}
	for _, f := range Formats() {
		if !written[f.Name] {
			t.Errorf("%s has no row in this test", f)
		}
	}
	_, err := Lookup("e4m3")
	if err == nil || !strings.HasPrefix(err.Error(), `unknown block format "e4m3": use one of mxfp8, mxfp8-e5m2, `) {
		t.Errorf("says %v", err)
	}
}

func TestValidateFormat(t *testing.T) {
	for _, tc := range []struct {
		format Format
		want   string
	}{
		{Format{Name: "x"}, `block format "x" has no element format`},
		{Format{Name: "x", Element: format.UE4M3, Scale: format.E8M0, Block: Shape{1, 32}}, "ue4m3 elements have no sign"},
		{Format{Name: "x", Element: format.E4M3}, "e4m3 elements need a scale"},
		{Format{Name: "x", Element: format.FP16}, "fp16 elements need a scale"},
		{Format{Name: "x", Element: format.BF16, Scale: format.E8M0, Block: Shape{1, 32}}, "elements of more than 8 bits take no scale"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E5M2, Block: Shape{1, 32}}, "scales are e8m0, e4m3, bf16 or f32, not e5m2"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: Shape{1, 32}, Global: true}, "only e4m3 scales take a global scale"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: Shape{-1, 32}}, "negative block shape"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: Shape{1, -32}}, "negative block shape"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: Shape{1, 1<<31 - 1}},
			"got blocks of 1×2147483647, want sides of at most 4096"},
		{Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: Shape{5000, 1}}, "got blocks of 5000×1"},
		{Format{Name: "x", Element: format.E2M1, Scale: format.E8M0, Block: Shape{1, 15}}, "blocks of 15 e2m1 codes do not fill whole bytes"},
		{Format{Name: "x", Element: format.E3M2, Scale: format.E8M0, Block: Shape{1, 10}}, "blocks of 10 e3m2 codes do not fill whole bytes"},
		{Format{Name: "x", Element: format.E2M1, Scale: format.F32}, "blocks of 0 e2m1 codes do not fill whole bytes"},
	} {
		for what, err := range map[string]error{
			"Validate":  tc.format.Validate(),
			"Quantizer": Quantizer{Format: tc.format}.Validate(),
			"Rowwise":   second(Quantizer{Format: tc.format}.Rowwise(tensor.New(1, 32), With{})),
			"NewTensor": second(NewTensor(tc.format, 1, 32)),
		} {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s says %v, want %q in it", what, err, tc.want)
			}
		}
	}
}

func second(_ *Tensor, err error) error { return err }

func TestQuantizerErrors(t *testing.T) {
	x := tensor.New(4, 32)
	value := func(v float32) *float32 { return &v }
	for _, tc := range []struct {
		name string
		q    Quantizer
		with With
		want string
	}{
		{"rule", Quantizer{Format: MXFP8, Rule: 9}, With{}, "unknown scale rule 9"},
		{"arithmetic", Quantizer{Format: NVFP4, Arithmetic: 9}, With{}, "unknown arithmetic 9"},
		{"even-mantissa", Quantizer{Format: MXFP8, Rule: Even, EvenMantissa: 23}, With{}, "got EvenMantissa 23, want 0 to 22"},
		{"negative-mantissa", Quantizer{Format: MXFP8, Rule: Even, EvenMantissa: -1}, With{}, "got EvenMantissa -1, want 0 to 22"},
		{"pow2", Quantizer{Format: MXFP8, PowerOfTwo: true}, With{}, "power-of-two scales are an option of formats with FP32 scales"},
		{"hadamard-block", Quantizer{Format: Format{Name: "x", Element: format.E2M1, Scale: format.E8M0, Block: Shape{1, 8}}, Hadamard: true},
			With{}, "got blocks of 8 elements, want a multiple of 16"},
		{"bf16-rounding", Quantizer{Format: BF16, Rounding: format.HalfAway}, With{},
			"elements without a scale round to nearest even, not half-away"},
		{"negative-first-row", Quantizer{Format: MXFP8}, With{FirstRow: -1}, "got first row -1"},
		{"no-stream", Quantizer{Format: MXFP8, Rounding: format.Stochastic}, With{}, "stochastic rounding needs a random stream (With.Random)"},
		{"threads", Quantizer{Format: NVFP4}, With{Threads: -1}, "got -1 threads"},
		{"nan-amax", Quantizer{Format: NVFP4}, With{Amax: value(nan)}, "got With.Amax NaN"},
		{"negative-amax", Quantizer{Format: NVFP4}, With{Amax: value(-1)}, "got With.Amax -1"},
		{"nonfinite", Quantizer{Format: MXFP8, NonFinite: 99}, With{}, "unknown NonFinite"},
		{"rounding", Quantizer{Format: MXFP8, Rounding: 99}, With{}, "unknown Rounding 99"},
		{"inverse-zero", Quantizer{Format: FP8Tensor}, With{Inverse: value(0)}, "got With.Inverse 0, want a positive finite number"},
		{"inverse-negative", Quantizer{Format: FP8Tensor}, With{Inverse: value(-3)}, "got With.Inverse -3, want a positive finite number"},
		{"inverse-of-blocks", Quantizer{Format: FP8Row}, With{Inverse: value(2)},
			"With.Inverse needs a format with one FP32 scale per tensor or a global scale"},
		{"inverse-of-e8m0", Quantizer{Format: Format{Name: "x", Element: format.E4M3, Scale: format.E8M0}}, With{Inverse: value(2)},
			"With.Inverse needs a format with one FP32 scale"},
		{"hook", Quantizer{Format: FP8Row}, With{Scales: func(int, []byte) {}}, "With.Scales needs a format with one-byte scales"},
		{"hook-bf16", Quantizer{Format: BF16}, With{Scales: func(int, []byte) {}}, "With.Scales needs a format with one-byte scales"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, d := range []Direction{Rowwise, Columnwise} {
				if _, err := direction(tc.q, x, d, tc.with); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: says %v, want %q in it", d, err, tc.want)
				}
			}
		})
	}
}

// TestBlockSizes: studies vary the block from 8 to 128. Elements that are codes
// times the power of two of their block come back, whatever its size, and one
// large element costs only its own block.
func TestBlockSizes(t *testing.T) {
	for _, element := range []*format.Scalar{format.E4M3, format.E5M2, format.E3M2, format.E2M3, format.E2M1, format.INT8} {
		for _, size := range []int{8, 16, 24, 32, 64, 96, 128} {
			t.Run(fmt.Sprintf("element=%s/block=%d", element, size), func(t *testing.T) {
				f := Format{Name: "study", Element: element, Scale: format.E8M0, Block: Shape{1, size}}
				blocks := 3
				x := tensor.New(2, blocks*size-5) // the last block has a tail
				for i := range x.Rows {
					for j := range x.Cols {
						code := uint32(j*7+i) % (element.MaxCode() + 1)
						if j%size == 0 {
							code = element.MaxCode()
						}
						x.Set(i, j, float32(element.Decode(code)*exp2(10*(j/size)-i)))
					}
				}
				q := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{})
				requireBits(t, q.Dequantize(1), x)
				if len(q.Scales) != 2*blocks || q.Scales[1] != 127+10 || q.Scales[2*blocks-1] != 127+19 {
					t.Errorf("scales are %v", q.Scales)
				}
				outlier := x.Clone()
				outlier.Set(0, 1, 1e30)
				got := mustQuantize(t, Quantizer{Format: f}, outlier, Rowwise, With{}).Dequantize(1)
				requireBits(t, got.View(0, 1, size, x.Cols), x.View(0, 1, size, x.Cols))
				requireBits(t, got.View(1, 2, 0, x.Cols), x.View(1, 2, 0, x.Cols))
			})
		}
	}
}

// TestTail: the last block is filled up with zero codes, and decodes without them.
func TestTail(t *testing.T) {
	for _, f := range Formats() {
		if f.Block.Cols == 0 {
			continue
		}
		for _, cols := range []int{1, f.Block.Cols - 1, f.Block.Cols + 1} {
			x := randomMatrix(0, 3, cols)
			q := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{})
			if got := q.Dequantize(1); got.Rows != 3 || got.Cols != cols {
				t.Errorf("%s: 3×%d decodes to %d×%d", f, cols, got.Rows, got.Cols)
			}
			c, stored := codes(q), q.paddedCols()
			if stored%f.Block.Cols != 0 || stored < cols || stored >= cols+f.Block.Cols || len(q.Codes) != 3*stored*f.Element.StoredBits()/8 {
				t.Errorf("%s: %d columns are stored as %d in %d bytes", f, cols, stored, len(q.Codes))
			}
			for l := range 3 {
				for i, code := range c[l*stored+cols : (l+1)*stored] {
					if code != 0 {
						t.Errorf("%s: code %d of row %d is %#x, past its end", f, cols+i, l, code)
					}
				}
			}
		}
	}
}

func TestNewTensor(t *testing.T) {
	for _, f := range Formats() {
		x := randomMatrix(0, 5, 40)
		want := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{})
		got, err := NewTensor(f, 5, 40)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Codes) != len(want.Codes) || len(got.Scales) != len(want.Scales) || len(got.Scales32) != len(want.Scales32) ||
			got.Global != 1 {
			t.Errorf("%s: %d codes, %d and %d scales", f, len(got.Codes), len(got.Scales), len(got.Scales32))
		}
		copy(got.Codes, want.Codes)
		copy(got.Scales, want.Scales)
		copy(got.Scales32, want.Scales32)
		got.Global, got.Amax = want.Global, want.Amax
		if !same(got, want) {
			t.Errorf("%s: filled with a file's bytes it differs", f)
		}
	}
	for _, shape := range [][2]int{{-1, 4}, {4, -1}} {
		if _, err := NewTensor(MXFP8, shape[0], shape[1]); err == nil || !strings.Contains(err.Error(), "got shape") {
			t.Errorf("%v says %v", shape, err)
		}
	}
}

// TestScaleBytes: one byte each, or a little-endian float32.
func TestScaleBytes(t *testing.T) {
	q := oneRow(t, Quantizer{Format: MXFP8}, []float32{448}, With{})
	if got := q.ScaleBytes(); len(got) != 1 || got[0] != 127 {
		t.Errorf("mxfp8: %v", got)
	}
	q = mustQuantize(t, Quantizer{Format: FP8Row}, tensor.Of(2, 1, []float32{448, 1}), Rowwise, With{})
	b := q.ScaleBytes()
	if len(b) != 8 || math.Float32frombits(binary.LittleEndian.Uint32(b)) != 1 ||
		math.Float32frombits(binary.LittleEndian.Uint32(b[4:])) != q.Scales32[1] {
		t.Errorf("fp8-row: % x of %v", b, q.Scales32)
	}
	if got := oneRow(t, Quantizer{Format: BF16}, []float32{1}, With{}).ScaleBytes(); len(got) != 0 {
		t.Errorf("bf16: %v", got)
	}
}

// TestUnscaled: bf16 and f32 are casts.
func TestUnscaled(t *testing.T) {
	x := randomMatrix(5, 9, 31)
	for _, d := range []Direction{Rowwise, Columnwise} {
		requireBits(t, mustQuantize(t, Quantizer{Format: F32}, x, d, With{}).Dequantize(1), x)
		got := mustQuantize(t, Quantizer{Format: BF16}, x, d, With{})
		y := got.Dequantize(1)
		for i := range x.Rows {
			for j := range x.Cols {
				want := roundBF16(x.At(i, j))
				if y := y.At(i, j); y != want && (y == y || want == want) {
					t.Errorf("%s bf16 of %g is %g, want %g", d, x.At(i, j), y, want)
				}
			}
		}
		if got.Amax != Amax(x, 1) || got.Scale(0, 0) != 1 {
			t.Errorf("bf16: amax %g, scale %g", got.Amax, got.Scale(0, 0))
		}
	}
}

func TestAmax(t *testing.T) {
	for _, tc := range []struct {
		x    []float32
		want float32
	}{
		{nil, 0}, {[]float32{negZero}, 0}, {[]float32{nan, nan}, 0}, {[]float32{1, -3, 2}, 3},
		{[]float32{-0x1p-149, 0}, 0x1p-149}, {[]float32{nan, -math.MaxFloat32}, math.MaxFloat32}, {[]float32{1, -inf, nan}, inf},
	} {
		if got := Amax(tensor.Of(1, len(tc.x), tc.x), 0); got != tc.want {
			t.Errorf("of %v is %g, want %g", tc.x, got, tc.want)
		}
	}
}
