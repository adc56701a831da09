package quant

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/tensor"
)

// everyQuantizer returns one quantizer of each format, and stochastic ones.
func everyQuantizer() []Quantizer {
	var all []Quantizer
	for _, f := range Formats() {
		all = append(all, Quantizer{Format: f})
	}
	for _, f := range []Format{MXFP8, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Tensor, FP8Row, FP8Block, NVFP4x16} {
		all = append(all, Quantizer{Format: f, Rounding: format.Stochastic})
	}
	return all
}

// eachQuantizer runs test for every quantizer and shape.
func eachQuantizer(t *testing.T, shapes [][2]int, test func(t *testing.T, q Quantizer, x tensor.Dense)) {
	for _, q := range everyQuantizer() {
		for _, shape := range shapes {
			t.Run(fmt.Sprintf("format=%s/rounding=%s/%dx%d", q.Format, q.Rounding, shape[0], shape[1]), func(t *testing.T) {
				test(t, q, randomMatrix(0, shape[0], shape[1]))
			})
		}
	}
}

func mustQuantize(t testing.TB, q Quantizer, x tensor.Dense, d Direction, with With) *Tensor {
	t.Helper()
	r, err := direction(q, x, d, with)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestColumnwise checks that a columnwise tensor is the rowwise one of the transposed source.
// (Random bits follow the elements of the source, not of its transpose.)
func TestColumnwise(t *testing.T) {
	eachQuantizer(t, [][2]int{{0, 3}, {1, 1}, {3, 33}, {130, 257}}, func(t *testing.T, q Quantizer, x tensor.Dense) {
		if q.Rounding == format.Stochastic {
			q.Rounding = format.NearestEven
		}
		got := mustQuantize(t, q, x, Columnwise, With{})
		if got.Direction != Columnwise || got.Rows() != x.Rows || got.Cols() != x.Cols {
			t.Errorf("is %s of %d×%d", got.Direction, got.Rows(), got.Cols())
		}
		want := mustQuantize(t, q, x.Transpose(), Rowwise, With{})
		want.Direction, want.Shape = Columnwise, got.Shape
		if !same(got, want) {
			t.Error("differs from the rowwise tensor of the transposed source")
		}
		values, transposed := got.Dequantize(0), want.Dequantize(0)
		if values.Rows != x.Rows || values.Cols != x.Cols {
			t.Errorf("decodes to %d×%d", values.Rows, values.Cols)
		}
		requireBits(t, values, transposed)
	})
}

// TestSquare checks that formats with square blocks have the same codes in both directions.
func TestSquare(t *testing.T) {
	for _, f := range Formats() {
		if !f.Square() || !f.Scaled() {
			continue
		}
		x := randomMatrix(0, 150, 270)
		row := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{})
		column := mustQuantize(t, Quantizer{Format: f}, x, Columnwise, With{})
		requireBits(t, column.Dequantize(0), row.Dequantize(0))
	}
}

func requireBits(t testing.TB, got, want tensor.Dense) {
	t.Helper()
	if got.Rows != want.Rows || got.Cols != want.Cols {
		t.Fatalf("%d×%d, want %d×%d", got.Rows, got.Cols, want.Rows, want.Cols)
	}
	for i := range want.Rows {
		for j := range want.Cols {
			if g, w := got.At(i, j), want.At(i, j); math.Float32bits(g) != math.Float32bits(w) {
				t.Fatalf("(%d, %d) is %g (%#08x), want %g (%#08x)", i, j, g, math.Float32bits(g), w, math.Float32bits(w))
			}
		}
	}
}

// TestViews checks that a view with gaps between its rows is quantized like a copy of it, and
// stays unchanged.
func TestViews(t *testing.T) {
	eachQuantizer(t, [][2]int{{140, 300}}, func(t *testing.T, q Quantizer, x tensor.Dense) {
		view := x.View(3, 137, 5, 261)
		inside := view.Clone()
		for i := range x.Data { // no amax may include what surrounds the view
			x.Data[i] = maxFloat32
		}
		for i := range view.Rows {
			copy(view.Row(i), inside.Row(i))
		}
		before := x.Clone()
		for _, d := range []Direction{Rowwise, Columnwise} {
			with := With{Random: &Stream{Seed: 1}}
			if !same(mustQuantize(t, q, view, d, with), mustQuantize(t, q, view.Clone(), d, with)) {
				t.Errorf("%s: a view gives another tensor", d)
			}
		}
		requireBits(t, x, before)
	})
}

// TestThreads checks that results do not depend on the number of goroutines.
func TestThreads(t *testing.T) {
	eachQuantizer(t, [][2]int{{1, 1}, {140, 300}}, func(t *testing.T, q Quantizer, x tensor.Dense) {
		for _, d := range []Direction{Rowwise, Columnwise} {
			with := With{Random: &Stream{Seed: 1}, Threads: 1}
			want := mustQuantize(t, q, x, d, with)
			values := want.Dequantize(1)
			for _, with.Threads = range []int{0, 2, 7} {
				if !same(mustQuantize(t, q, x, d, with), want) {
					t.Errorf("%s: differs on %d threads", d, with.Threads)
				}
				requireBits(t, want.Dequantize(with.Threads), values)
			}
		}
	})
}

// TestThreadsWholeColumns checks the same for scales of whole columns, whose amaxes several goroutines
// find, each in some of the rows.
func TestThreadsWholeColumns(t *testing.T) {
	x := randomMatrix(0, 256, 2048)
	q := Quantizer{Format: FP8Row}
	want := mustQuantize(t, q, x, Columnwise, With{Threads: 1})
	for _, threads := range []int{2, 7} {
		if !same(mustQuantize(t, q, x, Columnwise, With{Threads: threads}), want) {
			t.Errorf("differs on %d threads", threads)
		}
	}
}

// TestSomeRows checks that rows decoded separately are those of the whole tensor.
func TestSomeRows(t *testing.T) {
	eachQuantizer(t, [][2]int{{140, 300}}, func(t *testing.T, q Quantizer, x tensor.Dense) {
		for _, d := range []Direction{Rowwise, Columnwise} {
			r := mustQuantize(t, q, x, d, With{Random: &Stream{Seed: 1}})
			all := tensor.New(r.StoredRows(), r.StoredCols())
			r.DequantizeRows(all, 0, 1)
			for _, first := range []int{1, 31, 130} {
				some := tensor.New(9, r.StoredCols())
				r.DequantizeRows(some, first, 2)
				requireBits(t, some, all.View(first, first+9, 0, all.Cols))
			}
		}
	})
}

// TestTilesThreads checks that concatenated tiles of rows, quantized with the amax of the whole, are
// the whole tensor. Random bits follow the elements.
func TestTilesThreads(t *testing.T) {
	eachQuantizer(t, [][2]int{{300, 70}, {257, 96}}, func(t *testing.T, q Quantizer, x tensor.Dense) {
		for _, d := range []Direction{Rowwise, Columnwise} {
			if q.Format.Block == FP8Row.Block && d == Columnwise {
				continue // a scale spans all rows: see TestConcat
			}
			random := &Stream{Seed: 3, Step: 1, Direction: d}
			want := mustQuantize(t, q, x, d, With{Random: random})
			amax := Amax(x, 0)
			var tiles []*Tensor
			for from := 0; from < x.Rows; from += 128 {
				tile := x.View(from, min(from+128, x.Rows), 0, x.Cols)
				tiles = append(tiles, mustQuantize(t, q, tile, d, With{Amax: &amax, Random: random, FirstRow: from}))
			}
			got, err := Concat(tiles...)
			if err != nil {
				t.Fatal(err)
			}
			if !same(got, want) {
				t.Errorf("%s: tiles differ from the whole", d)
			}
		}
	})
}

// TestGivenAmax checks that With.Amax sets the scale; elements above it saturate.
func TestGivenAmax(t *testing.T) {
	x := []float32{1, -2, 4, 8}
	for _, tc := range []struct {
		format Format
		amax   float32
		scale  float32
		global float32
		values []float32
	}{
		{FP8Tensor, 448, 1, 1, []float32{1, -2, 4, 8}},
		{FP8Tensor, 1.75, 0x1p-8, 1, []float32{1, -1.75, 1.75, 1.75}},
		{NVFP4, 2688, 1.375, 1, []float32{0.6875, -2.0625, 4.125, 8.25}},
		{MXFP8, 1e30, 0x1p-5, 1, []float32{1, -2, 4, 8}}, // takes no amax of the whole
	} {
		r := oneRow(t, Quantizer{Format: tc.format}, x, With{Amax: &tc.amax})
		if r.Scale(0, 0) != tc.scale || r.Global != tc.global {
			t.Errorf("%s, amax %g: scales %g and %g, want %g and %g", tc.format, tc.amax, r.Scale(0, 0), r.Global, tc.scale, tc.global)
		}
		requireBits(t, r.Dequantize(1), tensor.Of(1, 4, tc.values))
	}
	// FP8 blocks of their own amax do not look at it.
	amax := float32(1)
	if !same(oneRow(t, Quantizer{Format: FP8Row}, x, With{Amax: &amax}), oneRow(t, Quantizer{Format: FP8Row}, x, With{})) {
		t.Error("a given amax changes fp8-row")
	}
}

// TestGivenInverse checks that With.Inverse sets the scale, and that the amax of the elements
// is reported.
func TestGivenInverse(t *testing.T) {
	inverse := float32(32)
	r := oneRow(t, Quantizer{Format: FP8Tensor}, []float32{1, -3, 20, nan}, With{Inverse: &inverse})
	if r.Scales32[0] != 1.0/32 || r.Amax != 20 {
		t.Errorf("scale %g and amax %g, want 1/32 and 20", r.Scales32[0], r.Amax)
	}
	if got := r.Dequantize(1).Row(0)[:3]; got[0] != 1 || got[1] != -3 || got[2] != 14 {
		t.Errorf("decodes to %v, want [1 -3 14]", got)
	}
}

// TestScalesHookThreads checks that With.Scales is called once for each row, with its scales.
func TestScalesHookThreads(t *testing.T) {
	for _, f := range Formats() {
		if !f.ByteScales() {
			continue
		}
		for _, d := range []Direction{Rowwise, Columnwise} {
			x := randomMatrix(0, 70, 130)
			rows := map[int]string{}
			with := With{Threads: 1, Scales: func(row int, codes []byte) {
				if _, twice := rows[row]; twice {
					t.Errorf("%s %s: Scales was called twice for row %d", d, f, row)
				}
				rows[row] = string(codes)
			}}
			r := mustQuantize(t, Quantizer{Format: f}, x, d, with)
			_, cols := r.ScaleShape()
			for l := range r.StoredRows() {
				row := l / f.Block.Rows
				if rows[l] != string(r.Scales[row*cols:(row+1)*cols]) {
					t.Errorf("%s %s: row %d: Scales got % x", d, f, l, rows[l])
				}
			}
		}
	}
}

// TestStochasticUnbiased: the mean of many draws is the value, for values all
// over the range of the elements.
func TestStochasticUnbiased(t *testing.T) {
	const draws = 1 << 14
	for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E3M2, MXFP6E2M3, MXFP4, MXINT8, NVFP4} {
		q := Quantizer{Format: f, Rounding: format.Stochastic}
		max := f.Element.Max()
		for _, fraction := range []float32{0.01, 0.2, 0.3, 0.55, 0.8, 0.97} {
			for _, sign := range []float32{1, -1} {
				want := sign * fraction * max
				x := tensor.New(draws/8, f.Block.Cols)
				for i := range x.Rows {
					for j := range 8 {
						x.Set(i, j, want)
					}
					x.Set(i, f.Block.Cols-1, max) // the scale is 1
				}
				global := max * 448
				r := mustQuantize(t, q, x, Rowwise, With{Amax: &global, Random: &Stream{Seed: 11}})
				y := r.Dequantize(0)
				var sum, squares float64
				for i := range y.Rows {
					for _, v := range y.Row(i)[:8] {
						sum += float64(v)
						squares += float64(v-want) * float64(v-want)
					}
				}
				mean, deviation := sum/draws, math.Sqrt(squares/draws)
				if math.Abs(mean-float64(want)) > 4*deviation/math.Sqrt(draws) {
					t.Errorf("%s: the mean of %g is %g, off by more than four standard errors of %g", f, want, mean, deviation)
				}
				if deviation == 0 && f.Element.Decode(f.Element.Encode(want)) != want {
					t.Errorf("%s: %g is always the same", f, want)
				}
			}
		}
	}
}

// TestStochasticKey: the same key gives the same codes, and each part of the key
// others. Values that are codes stay.
func TestStochasticKey(t *testing.T) {
	q := Quantizer{Format: MXFP4, Rounding: format.Stochastic}
	x := randomMatrix(0, 64, 64)
	key := Stream{Seed: 1 << 40, Step: 7, Tensor: 9, Operand: 3, Direction: Rowwise}
	first := mustQuantize(t, q, x, Rowwise, With{Random: &key})
	again := key
	if !same(mustQuantize(t, q, x, Rowwise, With{Random: &again}), first) {
		t.Error("the same key gives another tensor")
	}
	for name, change := range map[string]func(*Stream){
		"seed":      func(s *Stream) { s.Seed++ },
		"high-seed": func(s *Stream) { s.Seed += 1 << 32 },
		"step":      func(s *Stream) { s.Step++ },
		"tensor":    func(s *Stream) { s.Tensor++ },
		"operand":   func(s *Stream) { s.Operand++ },
		"direction": func(s *Stream) { s.Direction = Columnwise },
	} {
		other := key
		change(&other)
		if same(mustQuantize(t, q, x, Rowwise, With{Random: &other}), first) {
			t.Errorf("another %s gives the same tensor", name)
		}
	}
	exact := first.Dequantize(0)
	again.Seed++
	requireBits(t, mustQuantize(t, q, exact, Rowwise, With{Random: &again}).Dequantize(0), exact)
}

// TestPhilox: the known answers of Random123 for Philox4x32-10.
func TestPhilox(t *testing.T) {
	for _, tc := range []struct {
		counter [4]uint32
		k0, k1  uint32
		want    [4]uint32
	}{
		{[4]uint32{}, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}, math.MaxUint32, math.MaxUint32,
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420,
			0x24126ea1}},
	} {
		if got := philox(tc.counter, tc.k0, tc.k1); got != tc.want {
			t.Errorf("of %#08x is %#08x, want %#08x", tc.counter, got, tc.want)
		}
	}
	// Elements take the words of a block in turn; the key is as documented.
	s := Stream{Seed: 0x299f31d0a4093822, Step: 0x13198a2e, Tensor: 0x037073, Operand: 0x22, Direction: Rowwise}
	element := uint64(0x05a308d3243f6a88) * 4
	words := philox([4]uint32{0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0)
	for i, want := range words {
		if got := s.At(element + uint64(i)); got != want {
			t.Errorf("element %d takes %#08x, want %#08x", i, got, want)
		}
	}
}

// TestHadamard: v·D·H/4 by the definition of the matrices, rounded to BF16.
func TestHadamard(t *testing.T) {
	signs := []float64{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var v, got [16]float32
		for i := range v {
			v[i] = float32(random.IntN(511)-255) / 16
		}
		got = v
		Hadamard16(got[:])
		var energy, transformed float64
		for j := range got {
			sum := 0.0
			for i := range v {
				h := 1.0
				for both := i & j; both > 0; both &= both - 1 {
					h = -h
				}
				sum += float64(v[i]) * signs[i] * h
			}
			if want := roundBF16(float32(sum / 4)); got[j] != want {
				t.Fatalf("element %d of %v is %g, want %g", j, v, got[j], want)
			}
			energy += float64(v[j]) * float64(v[j])
			transformed += sum / 4 * sum / 4
		}
		if math.Abs(energy-transformed) > 1e-9*energy {
			t.Fatalf("the sum of squares went from %g to %g", energy, transformed)
		}
		inverseHadamard16(got[:])
		for i := range v {
			if math.Abs(float64(got[i]-v[i])) > 16*16/4*0x1p-8 {
				t.Fatalf("element %d comes back as %g, want %g up to rounding to BF16", i, got[i], v[i])
			}
		}
	}
}

// TestHadamardZeros: zeros of any signs become +0, in each kernel, as PyTorch's and a matrix unit's product with
// D·H/4 has it, whose sums begin at +0.
func TestHadamardZeros(t *testing.T) {
	negative := math.Float32frombits(1 << 31)
	var x [16 * 16]float32
	for j := range 16 { // the column j of D·H negates these to 16 zeros of one sign
		for i := range 16 {
			h := uint32(bits.OnesCount(uint(i&j))) ^ hadamardSigns>>i
			if h&1 == 0 {
				x[16*j+i] = negative
			}
		}
	}
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		got := x
		hadamardRow(got[:])
		for i, v := range got {
			if math.Float32bits(v) != 0 {
				t.Fatalf("row %d, element %d is %#x, want 0", i/16, i%16, math.Float32bits(v))
			}
		}
	})
}

// TestInverseHadamard: transforms without a fraction come back exactly.
func TestInverseHadamard(t *testing.T) {
	for i := range 16 {
		var v [16]float32
		v[i] = 4
		Hadamard16(v[:])
		for j, y := range v {
			if y != 1 && y != -1 {
				t.Errorf("element %d of unit vector %d is %g, want 1 or -1", j, i, y)
			}
		}
		inverseHadamard16(v[:])
		for j, x := range v {
			if j == i && x != 4 || j != i && x != 0 {
				t.Errorf("4 times unit vector %d comes back with %g at %d", i, x, j)
			}
		}
	}
}

// TestHadamardQuantizer: the transform is applied along the blocks before
// amaxes are taken, and only in whole groups.
func TestHadamardQuantizer(t *testing.T) {
	for _, f := range []Format{NVFP4, MXFP4, FP8Tensor, NVFP4x16} {
		for _, d := range []Direction{Rowwise, Columnwise} {
			x := randomMatrix(0, 48, 64)
			before := x.Clone()
			got := mustQuantize(t, Quantizer{Format: f, Hadamard: true}, x, d, With{})
			requireBits(t, x, before)
			lines := x.Clone()
			if d == Columnwise {
				lines = x.Transpose()
			}
			for i := range lines.Rows {
				for c := 0; c < lines.Cols; c += 16 {
					Hadamard16(lines.Row(i)[c : c+16])
				}
			}
			if d == Columnwise {
				lines = lines.Transpose()
			}
			if !same(got, mustQuantize(t, Quantizer{Format: f}, lines, d, With{})) {
				t.Errorf("%s %s differs from the quantized transform", d, f)
			}
		}
	}
	for _, d := range []Direction{Rowwise, Columnwise} {
		x := tensor.New(40, 24)
		_, err := direction(Quantizer{Format: NVFP4, Hadamard: true}, x, d, With{})
		if err == nil || !strings.Contains(err.Error(), "elements along the blocks, want a multiple of 16") {
			t.Errorf("%s: says %v", d, err)
		}
	}
}

// inverseHadamard16 undoes Hadamard16 up to its rounding: v·H·D/4, not rounded to BF16.
func inverseHadamard16(v []float32) {
	var sum [hadamardSize]float64
	for i := range sum {
		sum[i] = float64(v[i])
	}
	butterflies(&sum)
	for i := range sum {
		if hadamardSigns>>i&1 == 1 {
			sum[i] = -sum[i]
		}
		v[i] = float32(sum[i] / 4)
	}
}
