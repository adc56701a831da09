package quant

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

var (
	nan     = float32(math.NaN())
	inf     = float32(math.Inf(1))
	negZero = float32(math.Copysign(0, -1))
)

// blockOf returns n elements: fill, but for the first ones.
func blockOf(n int, fill float32, first ...float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = fill
	}
	copy(x, first)
	return x
}

// oneRow quantizes x as one row.
func oneRow(t testing.TB, q Quantizer, x []float32, with With) *Tensor {
	t.Helper()
	r, err := q.Rowwise(tensor.Of(1, len(x), x), with)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A corner is a block of 32 and what becomes of it: its scale, the code of its
// first element, and that of the others.
type corner struct {
	name        string
	fill        float32
	first       []float32
	scale       byte
	firstCode   byte
	othersCodes byte
}

func checkCorners(t *testing.T, q Quantizer, corners []corner) {
	t.Helper()
	for _, tc := range corners {
		t.Run(q.testName()+"/"+tc.name, func(t *testing.T) {
			r := oneRow(t, q, blockOf(32, tc.fill, tc.first...), With{})
			if r.Scales[0] != tc.scale {
				t.Errorf("scale is %#02x, want %#02x", r.Scales[0], tc.scale)
			}
			want := bytes.Repeat([]byte{tc.othersCodes}, 32)
			want[0] = tc.firstCode
			if got := codes(r); !bytes.Equal(got, want) {
				t.Errorf("codes are % x, want % x", got, want)
			}
		})
	}
}

// TestCornersMXFP8 follows the corner table of torchao's tests for both of its
// kernels' rules, and Transformer Engine's own answers to NaN and Inf.
func TestCornersMXFP8(t *testing.T) {
	const (
		minBF16 = 0x1p-133
		minF32  = 0x1p-149
	)
	floor := Quantizer{Format: MXFP8, Rule: Floor, NonFinite: Poison}
	rceil := Quantizer{Format: MXFP8, Rule: RatioCeil, NonFinite: Poison}
	both := []corner{
		{"zero", 0, nil, 0, 0, 0},
		{"negative-zero", 0, []float32{negZero}, 0, 0x80, 0},
		{"smallest-normal", 0x1p-126, nil, 0, 0x40, 0x40},
		{"smallest-bf16", minBF16, []float32{-minBF16}, 0, 0x88, 0x08},
		{"smallest-f32", minF32, []float32{-minF32}, 0, 0x80, 0x00},
		{"one-with-smallest", 1, []float32{minF32}, 119, 0x00, 0x78},
		{"one-with-negative-smallest", 1, []float32{-minF32}, 119, 0x80, 0x78},
		{"448", 448, []float32{-448}, 127, 0xfe, 0x7e},
		{"3.5", 3.5, nil, 120, 0x7e, 0x7e},
		{"inf", 1, []float32{inf}, 255, 0x7f, 0x7f},
		{"negative-inf", 1, []float32{-inf}, 255, 0x7f, 0x7f},
		{"nan", 1, []float32{nan}, 255, 0x7f, 0x7f},
		{"all-nan", nan, nil, 255, 0x7f, 0x7f},
		{"nan-and-zero", 0, []float32{nan}, 255, 0x7f, 0x7f},
	}
	checkCorners(t, floor, append([]corner{
		{"max-f32", math.MaxFloat32, []float32{-math.MaxFloat32}, 246, 0xfe, 0x7e},
		{"one-with-max", 1, []float32{math.MaxFloat32}, 246, 0x7e, 0x00},
		{"max-bf16", math.Float32frombits(0x7f7f0000), nil, 246, 0x7e, 0x7e},
		{"above-3.5", math.Float32frombits(0x40600001), nil, 120, 0x7e, 0x7e},
		{"below-512", math.Float32frombits(0x43ffffff), nil, 127, 0x7e, 0x7e},
		{"480", 480, []float32{-480}, 127, 0xfe, 0x7e},
	}, both...))
	checkCorners(t, rceil, append([]corner{
		{"max-f32", math.MaxFloat32, []float32{-math.MaxFloat32}, 247, 0xf8, 0x78},
		{"one-with-max", 1, []float32{math.MaxFloat32}, 247, 0x78, 0x00},
		{"max-bf16", math.Float32frombits(0x7f7f0000), nil, 247, 0x78, 0x78},
		{"above-3.5", math.Float32frombits(0x40600001), nil, 121, 0x76, 0x76},
		{"below-512", math.Float32frombits(0x43ffffff), nil, 128, 0x78, 0x78},
		{"480", 480, []float32{-480}, 128, 0xf7, 0x77},
	}, both...))
	checkCorners(t, Quantizer{Format: MXFP8}, []corner{
		{"inf", 1, []float32{inf}, 254, 0x7e, 0x00},
		{"negative-inf", -1, []float32{-inf}, 254, 0xfe, 0x80},
		{"inf-and-max", math.MaxFloat32, []float32{inf}, 254, 0x7e, 0x40},
		{"nan", 1, []float32{nan}, 119, 0x7f, 0x78},
		{"negative-nan", 1, []float32{math.Float32frombits(0xffc00001)}, 119, 0x7f, 0x78},
		{"nan-and-inf", nan, []float32{-inf}, 254, 0xfe, 0x7f},
		{"all-nan", nan, nil, 0, 0x7f, 0x7f},
		{"nan-and-zero", negZero, []float32{nan}, 0, 0x7f, 0x80},
	})
}

// TestCornersOfElements: what a poisoned block holds in formats with and without
// a NaN, and Transformer Engine's in those without.
func TestCornersOfElements(t *testing.T) {
	for _, tc := range []struct {
		f                 Format
		nan, unchecked    byte // every code of a poisoned block, by ElementNaN
		tolerated, maxInf byte // a NaN and an Inf that are tolerated
	}{
		{MXFP8, 0x7f, 0x7f, 0x7f, 0x7e},
		{MXFP8E5M2, 0x7f, 0x7f, 0x7f, 0x7b},
		{MXFP6E2M3, 0x1f, 0x0c, 0x1f, 0x1f},
		{MXFP6E3M2, 0x1f, 0x0e, 0x1f, 0x1f},
		{MXFP4, 0x07, 0x03, 0x07, 0x07},
	} {
		poison := Quantizer{Format: tc.f, Rule: Floor, NonFinite: Poison}
		checkCorners(t, poison, []corner{{"nan", 1, []float32{nan}, 255, tc.nan, tc.nan}, {"inf", 1, []float32{-inf}, 255, tc.nan, tc.nan}})
		poison.ElementNaN = format.Unchecked
		checkCorners(t, poison, []corner{{"unchecked-nan", 1, []float32{nan}, 255, tc.unchecked, tc.unchecked}})
		checkCorners(t, Quantizer{Format: tc.f}, []corner{{"all-nan", nan, nil, 0, tc.tolerated, tc.tolerated},
			{"inf", 0, []float32{inf}, 254, tc.maxInf, 0}})
	}
	checkCorners(t, Quantizer{Format: MXINT8}, []corner{
		{"zero", 0, []float32{negZero}, 0, 0, 0},
		{"most", 1.984375, []float32{-1.984375}, 127, 0x81, 0x7f},
		{"inf", 0, []float32{-inf}, 254, 0x81, 0},
	})
	checkCorners(t, Quantizer{Format: MXINT8, Rule: Floor}, []corner{{"saturates", 1.99, []float32{-1.999}, 127, 0x81, 0x7f}})
}

// TestDecodeOverflow: the least scale that saturates no element may decode the
// largest float32 values to Inf: 256·2^120.
func TestDecodeOverflow(t *testing.T) {
	r := oneRow(t, Quantizer{Format: MXFP8}, blockOf(32, 1, math.MaxFloat32), With{})
	if got := r.Dequantize(1).Data[0]; got != inf {
		t.Errorf("decodes to %g, want +Inf", got)
	}
	r = oneRow(t, Quantizer{Format: MXFP8, Rule: Floor}, blockOf(32, 1, math.MaxFloat32), With{})
	if got := r.Dequantize(1).Data[0]; got != 0x1.cp127 {
		t.Errorf("floor decodes to %g, want 448·2^119", got)
	}
}

// TestCornersNVFP4 follows Transformer Engine's two-level formulas by hand.
func TestCornersNVFP4(t *testing.T) {
	for _, tc := range []struct {
		name   string
		x      []float32 // blocks of 16
		amax   float32
		global float32
		scales []byte
		codes  map[int]byte // others are zero
	}{
		{"zeros", blockOf(16, 0, negZero), 0, 1, []byte{0}, map[int]byte{0: 8}},
		{"2688", blockOf(16, 0, 2688, -448), 2688, 1, []byte{0x7e}, map[int]byte{0: 7, 1: 0xa}},
		{"zero-block", append(blockOf(16, 0, 2688), blockOf(16, 0, negZero)...), 2688, 1, []byte{0x7e, 0}, map[int]byte{0: 7, 16: 8}},
		// A block far below the rest: its scale is zero, its codes are not, its values are.
		{"lost-block", append(blockOf(16, 0, 2688), blockOf(16, 0, 1e-3, -1e-30, 0x1p-149)...), 2688, 1, []byte{0x7e, 0},
			map[int]byte{0: 7, 16: 7, 17: 0xf}},
		{"inf", blockOf(16, 0, -inf, 2688), inf, 1, []byte{0x7e}, map[int]byte{0: 0xf, 1: 7}},
		{"nan", blockOf(16, 0, nan, 2688), 2688, 1, []byte{0x7e}, map[int]byte{0: 7, 1: 7}},
		{"all-nan", blockOf(16, nan), 0, 1, []byte{0}, allCodes(16, 7)},
		// amax so small that 2688/amax is kept at the largest float32.
		{"subnormal", blockOf(16, 0, 0x1p-149), 0x1p-149, 0x1p-128, []byte{0}, nil},
		{"largest", blockOf(16, 0, math.MaxFloat32), math.MaxFloat32, 1 / float32(2688/float32(math.MaxFloat32)), []byte{0x7e},
			map[int]byte{0: 7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := oneRow(t, Quantizer{Format: NVFP4}, tc.x, With{})
			if r.Amax != tc.amax || r.Global != tc.global {
				t.Errorf("amax %g and global scale %g, want %g and %g", r.Amax, r.Global, tc.amax, tc.global)
			}
			if !bytes.Equal(r.Scales, tc.scales) {
				t.Errorf("scales are % x, want % x", r.Scales, tc.scales)
			}
			for i, c := range codes(r) {
				if c != tc.codes[i] {
					t.Errorf("code %d is %#x, want %#x", i, c, tc.codes[i])
				}
			}
		})
	}
}

func allCodes(n int, c byte) map[int]byte {
	m := map[int]byte{}
	for i := range n {
		m[i] = c
	}
	return m
}

// TestCornersFP8: zero and Inf leave scale 1, and subnormal amaxes the largest
// finite encode scale, whose reciprocal is subnormal.
func TestCornersFP8(t *testing.T) {
	for _, f := range []Format{FP8Tensor, FP8Row, FP8Vec128, FP8Block} {
		for _, tc := range []struct {
			name  string
			x     []float32
			pow2  bool
			scale float32
			codes []byte
		}{
			{"zero", []float32{0, negZero}, false, 1, []byte{0, 0x80}},
			{"inf", []float32{-inf, 1, 1e9}, false, 1, []byte{0xfe, 0x38, 0x7e}},
			{"nan", []float32{nan, 448, -224}, false, 1, []byte{0x7f, 0x7e, 0xf6}},
			{"all-nan", []float32{nan, nan}, false, 1, []byte{0x7f, 0x7f}},
			{"subnormal", []float32{0x1p-140, 0x1p-149}, false, 0x1p-128, []byte{0, 0}},
			{"subnormal-pow2", []float32{0x1p-130, 0x1p-140}, true, 0x1p-127, []byte{0x20, 0}},
			{"largest-pow2", []float32{math.MaxFloat32, -1}, true, 0x1p120, []byte{0x78, 0x80}},
		} {
			t.Run(fmt.Sprintf("format=%s/%s", f, tc.name), func(t *testing.T) {
				r := oneRow(t, Quantizer{Format: f, PowerOfTwo: tc.pow2}, tc.x, With{})
				if r.Scales32[0] != tc.scale {
					t.Errorf("scale is %g, want %g", r.Scales32[0], tc.scale)
				}
				if got := codes(r)[:len(tc.codes)]; !bytes.Equal(got, tc.codes) {
					t.Errorf("codes are % x, want % x", got, tc.codes)
				}
			})
		}
	}
}
