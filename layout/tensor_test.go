package layout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

var directions = []quant.Direction{quant.Rowwise, quant.Columnwise}

// sample returns a matrix of which each block of 16 has another magnitude.
func sample(rows, cols int) tensor.Dense {
	random := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(random.NormFloat64()) * float32(int(1)<<random.IntN(12))
	}
	return x
}

func quantized(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense) *quant.Tensor {
	t.Helper()
	quantize := quant.Quantizer{Format: f}.Rowwise
	if d == quant.Columnwise {
		quantize = quant.Quantizer{Format: f}.Columnwise
	}
	q, err := quantize(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// eachByteScaled runs test for every format with one-byte scales, direction and
// shape, tails and empty ones included.
func eachByteScaled(t *testing.T, test func(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense)) {
	formats := append(quant.Formats(),
		quant.Format{Name: "mxfp8 of whole tensors", Element: format.E4M3, Scale: format.E8M0},
		quant.Format{Name: "mxfp8 of all rows", Element: format.E4M3, Scale: format.E8M0, Block: quant.Shape{Rows: 0, Cols: 32}})
	for _, f := range formats {
		if !f.ByteScales() {
			continue
		}
		for _, d := range directions {
			for _, shape := range [][2]int{{0, 5}, {5, 0}, {1, 1}, {3, 33}, {160, 96}, {257, 130}} {
				t.Run(fmt.Sprintf("format=%s/%s/%dx%d", f, d, shape[0], shape[1]), func(t *testing.T) {
					test(t, f, d, sample(shape[0], shape[1]))
				})
			}
		}
	}
}

// TestQuantizeSwizzled: in one go is as in two, for any number of threads.
func TestQuantizeSwizzled(t *testing.T) {
	eachByteScaled(t, func(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense) {
		want := quantized(t, f, d, x)
		wantScales, err := Scales(want, Swizzled)
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 3} {
			got, scales, err := QuantizeSwizzled(quant.Quantizer{Format: f}, x, d, quant.With{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("the tensor differs from that of the quantizer")
			}
			if !bytes.Equal(scales, wantScales) {
				t.Error("the scales differ from those swizzled afterwards")
			}
		}
	})
}

// TestQuantizeSwizzledHandsOn: what the caller brings is kept, its own look at
// the scales too.
func TestQuantizeSwizzledHandsOn(t *testing.T) {
	var seen sync.Map
	amax := float32(1e4)
	with := quant.With{Amax: &amax, Scales: func(line int, codes []byte) { seen.Store(line, bytes.Clone(codes)) }}
	q, _, err := QuantizeSwizzled(quant.Quantizer{Format: quant.NVFP4x16}, sample(40, 48), quant.Rowwise, with)
	if err != nil {
		t.Fatal(err)
	}
	if q.Amax != amax {
		t.Errorf("amax is %v, want the given one", q.Amax)
	}
	for line := range 40 {
		codes, ok := seen.Load(line)
		if want := q.Scales[line/16*3 : line/16*3+3]; !ok || !bytes.Equal(codes.([]byte), want) {
			t.Errorf("line %d was handed over as %v, want %v", line, codes, want)
		}
	}
}

// TestScales checks each scale's place in each order, by the decode scale of the
// element, and the way back.
func TestScales(t *testing.T) {
	eachByteScaled(t, func(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense) {
		q := quantized(t, f, d, x)
		_, blocks := q.ScaleShape()
		for _, o := range Orders() {
			got, err := Scales(q, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != o.Size(q.Lines(), blocks) {
				t.Fatalf("%s: %d bytes, want %d", o, len(got), o.Size(q.Lines(), blocks))
			}
			for l := range q.Lines() {
				for j := range blocks {
					scale := f.Scale.Decode(uint32(got[o.Offset(l, j, q.Lines(), blocks)]))
					if f.Global {
						scale = float32(scale * q.Global)
					}
					if want := q.Scale(l, j*f.Block.Cols); scale != want {
						t.Fatalf("%s: scale of line %d, block %d is %g, want %g", o, l, j, scale, want)
					}
				}
			}
			fresh := *q
			fresh.Scales = make([]byte, len(q.Scales))
			if err := SetScales(&fresh, o, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(fresh.Scales, q.Scales) {
				t.Errorf("%s: scales are not restored", o)
			}
		}
	})
}

// TestUntransposed checks each code's place, and the way back.
func TestUntransposed(t *testing.T) {
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		for _, shape := range [][2]int{{0, 4}, {5, 0}, {1, 4}, {33, 12}, {64, 64}, {130, 100}} {
			t.Run(fmt.Sprintf("format=%s/%dx%d", f, shape[0], shape[1]), func(t *testing.T) {
				rows, cols := shape[0], shape[1]
				q := quantized(t, f, quant.Columnwise, sample(rows, cols))
				got, err := Untransposed(q)
				if err != nil {
					t.Fatal(err)
				}
				codes := make([]byte, rows*cols)
				f.Element.Split(codes, got)
				line := make([]byte, f.StoredCols(rows))
				for l := range cols {
					f.Element.Split(line, q.Codes[l*q.LineBytes():])
					for i := range rows {
						if codes[i*cols+l] != line[i] {
							t.Fatalf("code of row %d, column %d is %#x, want %#x", i, l, codes[i*cols+l], line[i])
						}
					}
				}
				back, err := FromUntransposed(f, rows, cols, got)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(back.Codes, q.Codes) {
					t.Error("codes are not restored")
				}
				if back.Direction != quant.Columnwise || !reflect.DeepEqual(back.Shape, q.Shape) || len(back.Scales) != len(q.Scales) || len(back.Scales32) != len(q.Scales32) {
					t.Errorf("restored as %s %v with %d and %d scales", back.Direction, back.Shape, len(back.Scales), len(back.Scales32))
				}
			})
		}
	}
}

func TestErrors(t *testing.T) {
	x := sample(32, 33)
	row := quantized(t, quant.MXFP8, quant.Rowwise, x)
	square := quantized(t, quant.MXFP8x32, quant.Rowwise, x)
	torn, err := Scales(square, Swizzled)
	if err != nil {
		t.Fatal(err)
	}
	torn[Swizzled.Offset(7, 1, 32, 2)]++
	before := bytes.Clone(square.Scales)
	damaged := quantized(t, quant.MXFP8, quant.Rowwise, x)
	damaged.Scales = damaged.Scales[:63] // and memory goes on behind them

	fused := func(q quant.Quantizer) error {
		_, _, err := QuantizeSwizzled(q, x, quant.Rowwise, quant.With{})
		return err
	}
	untransposed := func(t *quant.Tensor) error {
		_, err := Untransposed(t)
		return err
	}
	from := func(f quant.Format, rows, cols, n int) error {
		_, err := FromUntransposed(f, rows, cols, make([]byte, n))
		return err
	}
	scales := func(t *quant.Tensor) error {
		_, err := Scales(t, Compact)
		return err
	}
	_, _, fusedBad := QuantizeSwizzled(quant.Quantizer{Format: quant.MXFP8}, tensor.Dense{Rows: -1}, quant.Rowwise, quant.With{})
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"fused-fp32-scales", fused(quant.Quantizer{Format: quant.FP8Vec128}), "fp8-vec128 has no scales of one byte"},
		{"fused-no-scales", fused(quant.Quantizer{Format: quant.BF16}), "bf16 has no scales of one byte"},
		{"fused-invalid", fused(quant.Quantizer{Format: quant.MXFP8, PowerOfTwo: true}), "power-of-two"},
		{"fused-negative-block", fused(quant.Quantizer{Format: quant.Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: quant.Shape{Rows: 1, Cols: -2}}}), "negative block"},
		{"fused-no-random-bits", fused(quant.Quantizer{Format: quant.MXFP8, Rounding: format.Stochastic}), "random stream"},
		{"fused-source", fusedBad, "no matrix is -1×0"},
		{"scales-fp32", scales(quantized(t, quant.FP8Block, quant.Rowwise, x)), "no scales of one byte"},
		{"scales-damaged", scales(damaged), "has 63 scales, not 32×2"},
		{"set-damaged", SetScales(damaged, Compact, make([]byte, 64)), "has 63 scales, not 32×2"},
		{"set-fp32", SetScales(quantized(t, quant.FP8Row, quant.Rowwise, x), Compact, nil), "no scales of one byte"},
		{"set-short", SetScales(row, Swizzled, make([]byte, 511)), "511 bytes are not the 32×2 scales of a mxfp8 tensor in swizzled order: want 512"},
		{"set-torn", SetScales(square, Swizzled, torn), "scale of line 7, block 1"},
		{"untransposed-rowwise", untransposed(row), "rowwise mxfp8"},
		{"untransposed-nibbles", untransposed(quantized(t, quant.MXFP4, quant.Columnwise, x)), "rows of 33 e2m1 codes do not fill whole bytes"},
		{"untransposed-bf16", untransposed(quantized(t, quant.BF16, quant.Columnwise, x)), "bf16 has no blocks"},
		{"from-nibbles", from(quant.MXFP4, 32, 33, 0), "do not fill whole bytes"},
		{"from-length", from(quant.MXFP8, 32, 33, 32), "32 bytes are not 32×33 codes of mxfp8: want 1056"},
		{"from-negative", from(quant.MXFP8, -1, 33, 0), "cannot have the shape"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
				t.Errorf("says %v, want %q in it", tc.err, tc.want)
			}
		})
	}
	if !bytes.Equal(square.Scales, before) {
		t.Error("a refused SetScales changed the scales")
	}
}
