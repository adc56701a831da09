package quant

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// reshapeFormats are all rows of the table and blocks of other shapes.
func reshapeFormats() []Format {
	return append(Formats(),
		Format{Name: "all rows", Element: format.E4M3, Scale: format.E8M0, Block: Shape{0, 16}},
		Format{Name: "whole bytes", Element: format.E4M3, Scale: format.E8M0},
		Format{Name: "48 rows", Element: format.E2M3, Scale: format.E8M0, Block: Shape{48, 16}},
		Format{Name: "square sixes", Element: format.E3M2, Scale: format.E8M0, Block: Shape{16, 16}})
}

func eachReshape(t *testing.T, test func(t *testing.T, f Format, d Direction)) {
	for _, f := range reshapeFormats() {
		for _, d := range []Direction{Rowwise, Columnwise} {
			t.Run(fmt.Sprintf("format=%s/%s", f, d), func(t *testing.T) { test(t, f, d) })
		}
	}
}

// spanned returns how many rows of the source a block spans, 0 where it is all.
func spanned(f Format, d Direction) int {
	switch {
	case !f.Scaled():
		return 1
	case d == Columnwise:
		return f.Block.Cols
	}
	return f.Block.Rows
}

// TestSliceRows checks that slices of whole blocks decode to their rows, and that others return an
// error.
func TestSliceRows(t *testing.T) {
	slow.Emulated(t, "it copies codes and scales")
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		const rows = 290
		x := randomMatrix(0, rows, 70)
		whole := mustQuantize(t, Quantizer{Format: f}, x, d, With{})
		values := whole.Dequantize(0)
		edges := []int{0, 1, 16, 31, 32, 48, 96, 128, 129, 256, 289, 290}
		for i, from := range edges {
			for _, to := range edges[i:] {
				got, err := whole.SliceRows(from, to)
				n := spanned(f, d)
				if n > 0 && (from%n != 0 || to%n != 0 && to != rows) {
					want := fmt.Sprintf("rows %d:%d cut a block: %s %s blocks span %d rows", from, to, d, f, n)
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%d:%d says %v, want %q in it", from, to, err, want)
					}
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				requireBits(t, got.Dequantize(1), values.View(from, to, 0, 70))
				if got.Direction != d || got.Global != whole.Global || got.Amax != whole.Amax {
					t.Errorf("%d:%d is %s, global scale %g, amax %g", from, to, got.Direction, got.Global, got.Amax)
				}
			}
		}
		for _, bad := range [][2]int{{-1, 0}, {32, 0}, {0, 291}, {291, 291}} {
			want := fmt.Sprintf("rows %d:%d are outside a %s tensor of 290 rows", bad[0], bad[1], f)
			if _, err := whole.SliceRows(bad[0], bad[1]); err == nil || err.Error() != want {
				t.Errorf("%v says %v, want %s", bad, err, want)
			}
		}
	})
}

// TestSliceIsACopy: a slice shares nothing with its tensor.
func TestSliceIsACopy(t *testing.T) {
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		whole := mustQuantize(t, Quantizer{Format: f}, randomMatrix(0, 256, 40), d, With{})
		before := whole.Dequantize(0)
		s, err := whole.SliceRows(0, 256)
		if err != nil {
			t.Fatal(err)
		}
		if !same(s, whole) {
			t.Error("the slice of all rows differs")
		}
		for _, b := range [][]byte{s.Codes, s.Scales} {
			for i := range b {
				b[i] ^= 1
			}
		}
		clear(s.Scales32)
		requireBits(t, whole.Dequantize(0), before)
	})
}

// TestConcat: the inverse of slicing, at every edge of blocks.
func TestConcat(t *testing.T) {
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		const rows = 290
		whole := mustQuantize(t, Quantizer{Format: f}, randomMatrix(0, rows, 70), d, With{})
		n := spanned(f, d)
		cuts := [][]int{{}, {n}, {n, 2 * n}}
		if n == 0 {
			n = 1
			cuts = [][]int{{}, {1}, {7, 250}}
		}
		cuts = append(cuts, []int{0, rows / n * n}) // a part without rows
		for _, cut := range cuts {
			var parts []*Tensor
			from := 0
			for _, to := range append(cut, rows) {
				part, err := whole.SliceRows(from, to)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, part)
				from = to
			}
			got, err := Concat(parts...)
			if err != nil {
				t.Errorf("cut at %v: %v", cut, err)
				continue
			}
			if !same(got, whole) {
				t.Errorf("cut at %v and put together, it differs", cut)
			}
		}
	})
}

func TestConcatErrors(t *testing.T) {
	quantize := func(f Format, d Direction, rows, cols int, amax float32) *Tensor {
		x := tensor.New(rows, cols)
		if rows > 0 && cols > 0 {
			x.Set(0, 0, amax)
		}
		return mustQuantize(t, Quantizer{Format: f}, x, d, With{})
	}
	empty := quantize(FP8Tensor, Rowwise, 0, 4, 0)
	other := MXFP8 // of the same name and block
	other.Element = format.E5M2
	for _, tc := range []struct {
		name  string
		parts []*Tensor
		want  string
	}{
		{"nothing", nil, "nothing to concatenate"},
		{"format", []*Tensor{quantize(MXFP8, Rowwise, 1, 4, 1), quantize(MXFP4, Rowwise, 1, 4, 1)},
			"tensor 1: rowwise mxfp4 after rowwise mxfp8"},
		{"element", []*Tensor{quantize(MXFP8, Rowwise, 1, 4, 1), quantize(other, Rowwise, 1, 4, 1)},
			"tensor 1: rowwise mxfp8 after rowwise mxfp8"},
		{"direction", []*Tensor{quantize(MXFP8, Rowwise, 32, 4, 1), quantize(MXFP8, Columnwise, 32, 4, 1)},
			"columnwise mxfp8 after rowwise mxfp8"},
		{"columns", []*Tensor{quantize(MXFP8, Rowwise, 1, 4, 1), quantize(MXFP8, Rowwise, 1, 5, 1)}, "5 columns after 4"},
		{"global", []*Tensor{quantize(NVFP4, Rowwise, 1, 4, 1), quantize(NVFP4, Rowwise, 1, 4, 2)},
			"global scale is 0.00074404763, the first one's 0.00037202382: quantize them with a common amax"},
		{"per-tensor", []*Tensor{quantize(FP8Tensor, Rowwise, 1, 4, 1), quantize(FP8Tensor, Rowwise, 1, 4, 2)},
			"differs from the first one's: quantize them with a common amax"},
		{"per-column", []*Tensor{quantize(FP8Row, Columnwise, 1, 4, 1), quantize(FP8Row, Columnwise, 1, 4, 2)}, "differs from the first one's"},
		{"empty-first", []*Tensor{empty, quantize(FP8Tensor, Rowwise, 1, 4, 1), quantize(FP8Tensor, Rowwise, 1, 4, 2)},
			"tensor 2: its scale, which all rows share, differs"},
		{"empty-columns", []*Tensor{quantize(FP8Tensor, Rowwise, 1, 5, 1), empty}, "4 columns after 5"},
		{"cut-2d", []*Tensor{quantize(FP8Block, Rowwise, 100, 4, 1), quantize(FP8Block, Rowwise, 28, 4, 1)},
			"tensor 1: the rows before it end within a block of 128 rows"},
		{"cut-columnwise", []*Tensor{quantize(MXFP4, Columnwise, 32, 4, 1), quantize(MXFP4, Columnwise, 31, 4, 1),
			quantize(MXFP4, Columnwise, 1, 4, 1)}, "tensor 2: the rows before it end within a block of 32 rows"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Concat(tc.parts...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("says %v, want %q in it", err, tc.want)
			}
		})
	}
}

// TestConcatRenamed checks that tensors of one format under two names have a concatenation.
func TestConcatRenamed(t *testing.T) {
	renamed := MXFP8
	renamed.Name = "other"
	x := []float32{1, -5}
	c, err := Concat(oneRow(t, Quantizer{Format: MXFP8}, x, With{}), oneRow(t, Quantizer{Format: renamed}, x, With{}))
	if err != nil || c.Rows() != 2 {
		t.Errorf("got %v (%v), want two rows", c, err)
	}
}

// TestConcatAmax: the largest of the parts'; equal NaN scales are equal.
func TestConcatAmax(t *testing.T) {
	parts := []*Tensor{
		oneRow(t, Quantizer{Format: MXFP8}, []float32{1}, With{}),
		oneRow(t, Quantizer{Format: MXFP8}, []float32{-5}, With{}),
		oneRow(t, Quantizer{Format: MXFP8}, []float32{2}, With{}),
	}
	c, err := Concat(parts...)
	if err != nil || c.Amax != 5 {
		t.Errorf("amax is %g (%v), want 5", c.Amax, err)
	}
	poisoned := oneRow(t, Quantizer{Format: FP8Tensor, NonFinite: Poison}, []float32{nan}, With{})
	if _, err := Concat(poisoned, poisoned); err != nil {
		t.Error(err)
	}
}

// TestReshape: leading dimensions change, rows and values do not.
func TestReshape(t *testing.T) {
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		q := mustQuantize(t, Quantizer{Format: f}, randomMatrix(0, 24, 36), d, With{})
		values := q.Dequantize(0)
		for _, shape := range [][]int{{24, 36}, {2, 3, 4, 36}, {1, 24, 36}, {24, 1, 36}} {
			r, err := q.Reshape(shape...)
			if err != nil {
				t.Error(err)
				continue
			}
			if !slices.Equal(r.Shape, shape) || r.Rows() != 24 || r.Cols() != 36 || r.StoredRows() != q.StoredRows() ||
				r.StoredCols() != q.StoredCols() {
				t.Errorf("%v became %v of %d×%d", shape, r.Shape, r.Rows(), r.Cols())
			}
			requireBits(t, r.Dequantize(0), values)
			shape[0] = 99
			if r.Shape[0] == 99 {
				t.Error("the shape is shared with the caller's")
			}
		}
		if !slices.Equal(q.Shape, []int{24, 36}) {
			t.Errorf("Reshape changed its receiver to %v", q.Shape)
		}
		for _, shape := range [][]int{{}, {24 * 36}, {36}, {36, 24}, {24, 35}, {23, 36}, {2, 13, 36}, {-2, -12, 36}, {0, 36}} {
			want := fmt.Sprintf("cannot reshape a %s tensor of shape [24 36] to %v: want the same last dimension", f, shape)
			if _, err := q.Reshape(shape...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v says %v, want %q in it", shape, err, want)
			}
		}
	})
}

// TestReshapeOverflow checks dimensions whose product is that of the rows only because it overflows.
func TestReshapeOverflow(t *testing.T) {
	empty := mustQuantize(t, Quantizer{Format: MXFP8}, tensor.New(0, 32), Rowwise, With{})
	if r, err := empty.Reshape(1<<32, 1<<32, 32); err == nil {
		t.Errorf("got a tensor of shape %v, want an error", r.Shape)
	}
}

// TestReshapedRows: slices and transposes of a tensor of more dimensions see its
// folded rows.
func TestReshapedRows(t *testing.T) {
	q := mustQuantize(t, Quantizer{Format: MXFP8x32}, randomMatrix(0, 64, 96), Rowwise, With{})
	folded, err := q.Reshape(2, 32, 96)
	if err != nil {
		t.Fatal(err)
	}
	s, err := folded.SliceRows(32, 64)
	if err != nil {
		t.Fatal(err)
	}
	requireBits(t, s.Dequantize(0), q.Dequantize(0).View(32, 64, 0, 96))
	transposed, err := folded.Transpose()
	if err != nil {
		t.Fatal(err)
	}
	requireBits(t, transposed.Dequantize(0), q.Dequantize(0).Transpose())
}

// TestTranspose checks that codes of square blocks decode to the transposed values, and that two
// transpositions restore them. Other blocks return an error.
func TestTranspose(t *testing.T) {
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		for _, shape := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {3, 33}, {70, 150}, {128, 256}} {
			q := mustQuantize(t, Quantizer{Format: f}, randomMatrix(0, shape[0], shape[1]), d, With{})
			transposed, err := q.Transpose()
			if f.Block.Rows != f.Block.Cols {
				if err == nil || !strings.Contains(err.Error(), "want square ones; quantize the transpose from the source") {
					t.Errorf("got error %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if transposed.Rows() != shape[1] || transposed.Cols() != shape[0] || transposed.Direction != d {
				t.Errorf("%v became %s of %d×%d", shape, transposed.Direction, transposed.Rows(), transposed.Cols())
			}
			requireBits(t, transposed.Dequantize(0), q.Dequantize(0).Transpose())
			back, err := transposed.Transpose()
			if err != nil {
				t.Fatal(err)
			}
			if !same(back, q) {
				t.Errorf("%v transposed twice differs", shape)
			}
		}
	})
}

// TestTransposeIsQuantized: the transpose of the codes is the quantized transpose.
func TestTransposeIsQuantized(t *testing.T) {
	for _, f := range reshapeFormats() {
		if !f.Square() {
			continue
		}
		x := randomMatrix(2, 70, 150)
		transposed, err := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{}).Transpose()
		if err != nil {
			t.Fatal(err)
		}
		if want := mustQuantize(t, Quantizer{Format: f}, x.Transpose(), Rowwise, With{}); !same(transposed, want) {
			t.Errorf("%s: differs from the quantized transpose", f)
		}
	}
}

// TestDequantizeThreads: each value is float32(scale·global)·code, rounded once, for
// codes and scales of all bits.
func TestDequantizeThreads(t *testing.T) {
	eachReshape(t, func(t *testing.T, f Format, d Direction) {
		x := randomMatrix(1, 40, 70)
		q := mustQuantize(t, Quantizer{Format: f}, x, d, With{})
		state := splitMix(len(f.Name))
		for i := range q.Codes {
			q.Codes[i] = byte(state.next())
		}
		for i := range q.Scales {
			q.Scales[i] = byte(state.next())
		}
		for i := range q.Scales32 {
			q.Scales32[i] = math.Float32frombits(uint32(state.next()))
		}
		q.Global = 0x1.8p-20
		if !f.Global {
			q.Global = 1
		}
		got := q.Dequantize(0)
		if !f.Scaled() {
			want := make([]float32, len(got.Data))
			if err := tensor.FromBytes(want, q.Codes, f.Element); err != nil {
				t.Fatal(err)
			}
			lines := tensor.Of(q.StoredRows(), q.StoredCols(), want)
			if d == Columnwise {
				lines = lines.Transpose()
			}
			requireBits(t, got, lines)
			return
		}
		c := codes(q)
		_, scaleCols := q.ScaleShape()
		for i := range x.Rows {
			for j := range x.Cols {
				l, p := i, j
				if d == Columnwise {
					l, p = j, i
				}
				at := blockIndex(l, f.Block.Rows)*scaleCols + blockIndex(p, f.Block.Cols)
				var scale float32
				if q.Scales != nil {
					scale = mul32(f.Scale.Decode(uint32(q.Scales[at])), q.Global)
				} else {
					scale = q.Scales32[at]
				}
				if s := q.Scale(l, p); s != scale && s == s {
					t.Fatalf("scale of (%d, %d) is %g, want %g", i, j, s, scale)
				}
				want := mul32(scale, f.Element.Decode(uint32(c[l*q.paddedCols()+p])))
				if g := got.At(i, j); math.Float32bits(g) != math.Float32bits(want) && (g == g || want == want) {
					t.Fatalf("(%d, %d) is %g, want %g", i, j, g, want)
				}
			}
		}
	})
}

// TestRowScales compares the scales of a row with Tensor.Scale of each block.
func TestRowScales(t *testing.T) {
	for _, f := range Formats() {
		q, err := Quantizer{Format: f}.Rowwise(randomMatrix(0, 40, 128), With{})
		if err != nil {
			t.Fatal(err)
		}
		extent := f.Block.Cols
		if extent == 0 {
			extent = 128
		}
		scales := make([]float32, 128/extent)
		for _, l := range []int{0, 1, 33} {
			q.RowScales(scales, l)
			for i, s := range scales {
				if want := q.Scale(l, i*extent); s != want {
					t.Errorf("%v: scale %d of row %d is %v, want %v", f, i, l, s, want)
				}
			}
		}
	}
}
