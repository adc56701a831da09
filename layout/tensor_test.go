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

// sample returns a matrix in which each block of 16 has a different magnitude.
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

// eachByteScaled runs test for every format with one-byte scales, direction and shape, partial
// blocks and empty shapes included.
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

// TestQuantizeSwizzled compares it with quantizing, then swizzling, for any number of threads.
func TestQuantizeSwizzled(t *testing.T) {
	eachByteScaled(t, func(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense) {
		want := quantized(t, f, d, x)
		wantScales, err := Swizzled.Scales(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 3} {
			got, scales, err := QuantizeSwizzled(quant.Quantizer{Format: f}, x, d, quant.With{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("tensor differs from the quantizer's")
			}
			if !bytes.Equal(scales, wantScales) {
				t.Error("scales differ from those swizzled afterwards")
			}
		}
	})
}

// TestQuantizeSwizzledWith checks that the caller's amax and Scales function are used.
func TestQuantizeSwizzledWith(t *testing.T) {
	var seen sync.Map
	amax := float32(1e4)
	with := quant.With{Amax: &amax, Scales: func(row int, codes []byte) { seen.Store(row, bytes.Clone(codes)) }}
	q, _, err := QuantizeSwizzled(quant.Quantizer{Format: quant.NVFP4x16}, sample(40, 48), quant.Rowwise, with)
	if err != nil {
		t.Fatal(err)
	}
	if q.Amax != amax {
		t.Errorf("amax: got %v, want the given one", q.Amax)
	}
	for row := range 40 {
		codes, ok := seen.Load(row)
		if want := q.Scales[row/16*3 : row/16*3+3]; !ok || !bytes.Equal(codes.([]byte), want) {
			t.Errorf("scales of row %d: got %v, want %v", row, codes, want)
		}
	}
}

// TestScales checks the offset of each scale in each order, by the decode scale of the
// element, and the round trip.
func TestScales(t *testing.T) {
	eachByteScaled(t, func(t *testing.T, f quant.Format, d quant.Direction, x tensor.Dense) {
		q := quantized(t, f, d, x)
		_, blocks := q.ScaleShape()
		for _, o := range Orders() {
			got, err := o.Scales(q)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != o.Size(q.StoredRows(), blocks) {
				t.Fatalf("%s: got %d bytes, want %d", o, len(got), o.Size(q.StoredRows(), blocks))
			}
			for l := range q.StoredRows() {
				for j := range blocks {
					scale := f.Scale.Decode(uint32(got[o.Offset(l, j, q.StoredRows(), blocks)]))
					if f.Global {
						scale = float32(scale * q.Global)
					}
					if want := q.Scale(l, j*f.Block.Cols); scale != want {
						t.Fatalf("%s: scale of row %d, block %d: got %g, want %g", o, l, j, scale, want)
					}
				}
			}
			fresh := *q
			fresh.Scales = make([]byte, len(q.Scales))
			if err := o.SetScales(&fresh, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(fresh.Scales, q.Scales) {
				t.Errorf("%s: round trip of scales differs", o)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	x := sample(32, 33)
	row := quantized(t, quant.MXFP8, quant.Rowwise, x)
	square := quantized(t, quant.MXFP8x32, quant.Rowwise, x)
	torn, err := Swizzled.Scales(square)
	if err != nil {
		t.Fatal(err)
	}
	torn[Swizzled.Offset(7, 1, 32, 2)]++
	before := bytes.Clone(square.Scales)
	damaged := quantized(t, quant.MXFP8, quant.Rowwise, x)
	damaged.Scales = damaged.Scales[:63] // with more capacity

	fused := func(q quant.Quantizer) error {
		_, _, err := QuantizeSwizzled(q, x, quant.Rowwise, quant.With{})
		return err
	}
	scales := func(t *quant.Tensor) error {
		_, err := compact.Scales(t)
		return err
	}
	_, _, fusedBad := QuantizeSwizzled(quant.Quantizer{Format: quant.MXFP8}, tensor.Dense{Rows: -1}, quant.Rowwise, quant.With{})
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"fused-fp32-scales", fused(quant.Quantizer{Format: quant.FP8Vec128}), "fp8-vec128 has no one-byte scales"},
		{"fused-no-scales", fused(quant.Quantizer{Format: quant.BF16}), "bf16 has no one-byte scales"},
		{"fused-invalid", fused(quant.Quantizer{Format: quant.MXFP8, PowerOfTwo: true}), "power-of-two"},
		{"fused-negative-block",
			fused(quant.Quantizer{Format: quant.Format{Name: "x", Element: format.E4M3, Scale: format.E8M0, Block: quant.Shape{Rows: 1, Cols: -2}}}),
			"negative block"},
		{"fused-no-random-bits", fused(quant.Quantizer{Format: quant.MXFP8, Rounding: format.Stochastic}), "random stream"},
		{"fused-source", fusedBad, "invalid shape -1×0"},
		{"scales-fp32", scales(quantized(t, quant.FP8Block, quant.Rowwise, x)), "no one-byte scales"},
		{"scales-damaged", scales(damaged), "got 63 scales, want 32×2"},
		{"set-damaged", compact.SetScales(damaged, make([]byte, 64)), "got 63 scales, want 32×2"},
		{"set-fp32", compact.SetScales(quantized(t, quant.FP8Row, quant.Rowwise, x), nil), "no one-byte scales"},
		{"set-short", Swizzled.SetScales(row, make([]byte, 511)), "scales of a mxfp8 tensor: got 511 bytes, want 512 for 32×2 scales in " +
			"swizzled order"},
		{"set-torn", Swizzled.SetScales(square, torn), "scale of row 7, block 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", tc.err, tc.want)
			}
		})
	}
	if !bytes.Equal(square.Scales, before) {
		t.Error("SetScales changed the scales on error")
	}
}
