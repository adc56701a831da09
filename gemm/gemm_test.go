package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// edgy returns a matrix with many edge values: zeros, blocks of zeros, outliers, powers of
// two, and rows of very different magnitude.
func edgy(r *rand.Rand, rows, cols int) tensor.Dense {
	d := tensor.New(rows, cols)
	for i := range rows {
		size := math.Ldexp(1, r.IntN(17)-8)
		for j := range cols {
			v := r.NormFloat64()
			switch r.IntN(16) {
			case 0:
				v = 0
			case 1:
				v *= 64
			case 2:
				v = math.Copysign(math.Ldexp(1, r.IntN(8)-4), v)
			}
			d.Set(i, j, float32(v*size))
		}
		if cols >= 64 && r.IntN(3) == 0 {
			clear(d.Row(i)[32:64])
		}
	}
	return d
}

// operand quantizes a random matrix to n rows of k elements.
func operand(t testing.TB, r *rand.Rand, f quant.Format, d quant.Direction, n, k int) *quant.Tensor {
	t.Helper()
	q := quant.Quantizer{Format: f}
	var x *quant.Tensor
	var err error
	if d == quant.Rowwise {
		x, err = q.Rowwise(edgy(r, n, k), quant.With{})
	} else {
		x, err = q.Columnwise(edgy(r, k, n), quant.With{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// framed returns an m×n matrix within a larger buffer of canaries, and a function that checks
// them.
func framed(t testing.TB, m, n int) (c tensor.Dense, check func()) {
	const canary, edge = 123456, 5
	d := tensor.New(m+2, n+2*edge)
	for i := range d.Data {
		d.Data[i] = canary
	}
	c = d.View(1, m+1, edge, n+edge)
	for i := range m {
		for j := range n {
			c.Set(i, j, float32(math.NaN())) // C = … does not read C
		}
	}
	return c, func() {
		t.Helper()
		for i := range d.Rows {
			for j, v := range d.Row(i) {
				if (i < 1 || i > m || j < edge || j >= n+edge) && v != canary {
					t.Fatalf("wrote %g outside of C at row %d, column %d", v, i-1, j-edge)
				}
			}
		}
	}
}

// bound returns the maximum difference of C from the reference.
func bound(k int, alpha, magnitude float64) float64 {
	n := float64(k + 8)
	return n*0x1p-23*math.Abs(alpha)*magnitude + n*0x1p-126*max(1, math.Abs(alpha))
}

var shapes = []struct{ m, n, k int }{
	{1, 1, 1}, {1, 48, 32}, {8, 48, 128}, {9, 49, 33}, {17, 31, 100}, {16, 33, 256},
	{3, 100, 1056}, {19, 50, 2100}, {65, 16, 160}, {0, 3, 32}, {3, 0, 32},
}

// TestMul compares products of every format with itself, and of some pairs, with the reference
// on every tier.
func TestMul(t *testing.T) {
	var pairs [][2]quant.Format
	for _, f := range quant.Formats() {
		pairs = append(pairs, [2]quant.Format{f, f})
	}
	pairs = append(pairs, [][2]quant.Format{
		{quant.MXFP8, quant.MXFP4}, {quant.BF16, quant.NVFP4}, {quant.FP8Vec128, quant.FP8Block}, {quant.MXINT8, quant.MXFP4},
		{quant.MXFP6E2M3, quant.MXINT8}, {quant.F32, quant.MXFP8}, {quant.FP8Row, quant.FP8Tensor}, {quant.NVFP4, quant.MXFP4},
		{quant.BF16, quant.FP8Block}, {quant.MXFP8x32, quant.MXFP8E5M2}, {quant.NVFP4x16, quant.NVFP4}, {quant.MXINT8, quant.MXFP8},
	}...)
	for n, pair := range pairs {
		t.Run(fmt.Sprintf("a=%s/b=%s", pair[0], pair[1]), func(t *testing.T) {
			for i, s := range shapes {
				if (n+i)%slow.Stride(1, 5) > 0 {
					continue
				}
				r := rand.New(rand.NewPCG(uint64(i), 7))
				a := operand(t, r, pair[0], quant.Direction(i%2), s.m, s.k)
				b := operand(t, r, pair[1], quant.Direction(i/2%2), s.n, s.k)
				want, magnitude, err := Reference(a, b)
				if err != nil {
					t.Fatal(err)
				}
				cputest.Run(t, func(t *testing.T, _ cpu.Tier) { compareWith(t, want, magnitude, a, b, Options{Threads: 1 + i%3}) })
			}
		})
	}
}

// TestPairs multiplies every format by every other, over several blocks, with every kernel
// that supports them. A short run takes one of the two shapes for each pair, under an emulator
// every eleventh pair; TestMul has each format with itself.
func TestPairs(t *testing.T) {
	r, stride := rand.New(rand.NewPCG(3, 5)), slow.Stride(2, 11)
	const n = 35
	for odd, s := range []struct{ m, k int }{{3, 3*128 + 41}, {17, 3 * 128}} { // whole and partial blocks take different packing paths
		m, k := s.m, s.k
		for i, f := range quant.Formats() {
			a := operand(t, r, f, quant.Direction(i%2), m, k)
			for j, g := range quant.Formats() {
				if (i != j || stride > 2) && (i+j)%stride != odd%stride {
					continue
				}
				b := operand(t, r, g, quant.Direction((i+j)/2%2), n, k)
				everyKernel(t, a, b)
			}
		}
	}
}

// everyKernel compares the product with the reference for each kernel that supports the
// operands.
func everyKernel(t *testing.T, a, b *quant.Tensor) {
	t.Helper()
	want, magnitude, err := Reference(a, b)
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, k := range Kernels() {
		o := Options{Kernel: k.Name}
		if _, err := Choose(a, b, o); err != nil {
			continue
		}
		taken++
		t.Run(fmt.Sprintf("m=%d/a=%s/b=%s/kernel=%s", a.StoredRows(), a.Format, b.Format, k.Name),
			func(t *testing.T) { compareWith(t, want, magnitude, a, b, o) })
	}
	if taken == 0 {
		t.Errorf("no kernel supports %s × %s", a.Format, b.Format)
	}
}

// compare multiplies and fails if the result is outside the bound.
func compare(t *testing.T, a, b *quant.Tensor, o Options) tensor.Dense {
	t.Helper()
	want, magnitude, err := Reference(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return compareWith(t, want, magnitude, a, b, o)
}

// compareWith is compare with the results of Reference, which several products share.
func compareWith(t *testing.T, want, magnitude []float64, a, b *quant.Tensor, o Options) tensor.Dense {
	t.Helper()
	m, n := a.StoredRows(), b.StoredRows()
	c, checkCanaries := framed(t, m, n)
	checkNaNScale(t, a, b, Mul(c, a, b, o))
	checkCanaries()
	for i := range m {
		for j := range n {
			got, w := float64(c.At(i, j)), want[i*n+j]
			if w != w && got != got || w == got {
				continue
			}
			if !(math.Abs(got-w) <= bound(a.StoredCols(), 1, magnitude[i*n+j])) {
				t.Fatalf("%d×%d×%d at (%d,%d): got %g, want %g ± %g", m, n, a.StoredCols(), i, j, got, w, bound(a.StoredCols(), 1, magnitude[i*n+j]))
			}
		}
	}
	return c
}

// TestOptions checks alpha, accumulation, bias and BF16 output against the plain product.
func TestOptions(t *testing.T) {
	const m, n, k = 21, 49, 1100 // more rows than kernels for few rows have, whole tiles and partial ones
	for i, f := range []quant.Format{quant.NVFP4, quant.MXFP8, quant.MXFP4, quant.FP8Vec128, quant.F32} {
		if i%slow.Stride(1, 3) > 0 { // NVFP4 and FP8Vec128 stay
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
		product, magnitude, err := Reference(a, b)
		if err != nil {
			t.Fatal(err)
		}
		start, bias := edgy(r, m, n), edgy(r, 1, n).Row(0)
		cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
			for _, alpha := range []float32{0, 1, -0.3} {
				if testing.Short() && alpha == 1 { // which 0 means
					continue
				}
				for _, accumulate := range []bool{false, true} {
					for _, withBias := range []bool{false, true} {
						o := Options{Alpha: alpha, Accumulate: accumulate, Threads: 2}
						if withBias {
							o.Bias = bias
						}
						factor := float64(alpha)
						if alpha == 0 {
							factor = 1
						}
						c := start.Clone()
						if err := Mul(c, a, b, o); err != nil {
							t.Fatal(err)
						}
						for i := range m {
							for j := range n {
								want, limit := factor*product[i*n+j], bound(k, factor, magnitude[i*n+j])
								if accumulate {
									want += float64(start.At(i, j))
									limit += 0x1p-20 * math.Abs(float64(start.At(i, j)))
								}
								if withBias {
									want += float64(bias[j])
									limit += 0x1p-20 * math.Abs(float64(bias[j]))
								}
								if got := float64(c.At(i, j)); !(math.Abs(got-want) <= limit) {
									t.Fatalf("format=%s alpha=%g accumulate=%v bias=%v at (%d,%d): got %g, want %g ± %g", f, alpha, accumulate, withBias, i, j, got,
										want, limit)
								}
							}
						}
						checkBF16(t, a, b, start, o)
					}
				}
			}
		})
	}
}

// checkBF16 checks that MulBF16 equals Mul rounded to BF16.
func checkBF16(t *testing.T, a, b *quant.Tensor, start tensor.Dense, o Options) {
	t.Helper()
	cast := func(d tensor.Dense) *quant.Tensor {
		q, err := quant.Quantizer{Format: quant.BF16}.Rowwise(d, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	got := cast(start)
	c := got.Dequantize(1)
	checkNaNScale(t, a, b, Mul(c, a, b, o))
	checkNaNScale(t, a, b, MulBF16(got, a, b, o))
	if string(cast(c).Codes) != string(got.Codes) {
		t.Errorf("options %+v: MulBF16 differs from Mul rounded to BF16", o)
	}
}

// TestThreads checks that the bits of C do not depend on the number of threads, nor on whether
// B is packed beforehand.
func TestThreads(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	const m, n, k = 100, 98, 2080 // more than the MC and KC of BF16 kernels
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Block, quant.F32} {
			r := rand.New(rand.NewPCG(3, 4))
			a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
			packed, err := Pack(b, f, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var first tensor.Dense
			for threads := 1; threads <= 3; threads++ {
				for _, mul := range []func(tensor.Dense, Options) error{
					func(c tensor.Dense, o Options) error { return Mul(c, a, b, o) },
					func(c tensor.Dense, o Options) error { return packed.Mul(c, a, o) },
				} {
					c := tensor.New(m, n)
					if err := mul(c, Options{Threads: threads}); err != nil {
						t.Fatal(err)
					}
					if first.Data == nil {
						first = c
					}
					if !sameBits(first.Data, c.Data) {
						t.Fatalf("format=%s: bits differ between %d threads and one", f, threads)
					}
				}
			}
		}
	})
}

func sameBits(x, y []float32) bool {
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
			return false
		}
	}
	return len(x) == len(y)
}

// TestPackedBF16 checks that MulBF16 gives the same bits with packed weights.
func TestPackedBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, 40, 96), operand(t, r, quant.MXFP8, quant.Rowwise, 50, 96)
	packed, err := Pack(b, quant.MXFP8, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, mul := range []func(*quant.Tensor) error{
		func(c *quant.Tensor) error { return MulBF16(c, a, b, Options{}) },
		func(c *quant.Tensor) error { return packed.MulBF16(c, a, Options{}) },
	} {
		c, err := quant.NewTensor(quant.BF16, 40, 50)
		if err != nil {
			t.Fatal(err)
		}
		if err := mul(c); err != nil {
			t.Fatal(err)
		}
		results = append(results, string(c.Codes))
	}
	if results[0] != results[1] {
		t.Error("packed and unpacked weights give different bits")
	}
}

// TestErrors checks the error for each kind of mismatch.
func TestErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	make := func(f quant.Format, d quant.Direction, n, k int) *quant.Tensor { return operand(t, r, f, d, n, k) }
	a, b := make(quant.MXFP8, quant.Rowwise, 3, 64), make(quant.MXFP8, quant.Rowwise, 5, 64)
	change := func(f func(*quant.Tensor)) *quant.Tensor {
		x := *a
		f(&x)
		return &x
	}
	c := tensor.New(3, 5)
	for _, tc := range []struct {
		name string
		c    tensor.Dense
		a, b *quant.Tensor
		o    Options
		want string
	}{
		{"depth", c, make(quant.MXFP8, quant.Rowwise, 3, 32), b, Options{}, "rowwise mxfp8 3×32"},
		{"direction of a", c, make(quant.MXFP8, quant.Columnwise, 64, 3), b, Options{}, "a has the wrong direction: quantize it rowwise"},
		{"direction of b", c, a, make(quant.MXFP8, quant.Rowwise, 64, 5), Options{}, "b has the wrong direction: quantize it columnwise"},
		{"rows of c", tensor.New(4, 5), a, b, Options{}, "c: got 4×5"},
		{"columns of c", tensor.New(3, 6), a, b, Options{}, "is 3×5"},
		{"data of c", tensor.Dense{Rows: 3, Cols: 5, Stride: 5, Data: c.Data[:14]}, a, b, Options{}, "too few"},
		{"stride of c", tensor.Dense{Rows: 3, Cols: 5, Stride: 4, Data: c.Data}, a, b, Options{}, "is less than the columns"},
		{"bias", c, a, b, Options{Bias: c.Data[:4]}, "bias: got 4 elements, want 5"},
		{"no scales", c, change(func(x *quant.Tensor) { x.Scales = nil }), b, Options{}, "got 0 scales, want 3×2"},
		{"few codes", c, change(func(x *quant.Tensor) { x.Codes = x.Codes[1:] }), b, Options{}, "got 191 bytes of codes, want 192"},
		{"negative shape", c, change(func(x *quant.Tensor) {
			*x = quant.Tensor{Format: quant.BF16, Shape: []int{-3, -64}, Codes: x.Codes[:0]}
		}), b, Options{}, "got shape [-3 -64]"},
		{"shape beyond all memory", c, change(func(x *quant.Tensor) { *x = quant.Tensor{Format: quant.BF16, Shape: []int{4, 1 << 61}} }), b,
			Options{}, "got shape [4 "},
		{"stride beyond all memory", tensor.Dense{Rows: 5, Cols: 5, Stride: 1 << 62, Data: c.Data}, a, b, Options{}, "too few"},
		{"no shape", c, change(func(x *quant.Tensor) { x.Shape = nil }), b, Options{}, "no shape"},
		{"nil", c, nil, b, Options{}, "a is nil"},
		{"format", c, change(func(x *quant.Tensor) { x.Format.Element = nil }), b, Options{}, "no element format"},
		{"FP32 scales", c, change(func(x *quant.Tensor) { x.Format = quant.FP8Row }), b, Options{}, "got 0 FP32 scales, want 3×1"},
		{"kernel", c, a, b, Options{Kernel: "fast"}, `unknown kernel: got "fast"`},
		{"kernel that cannot", c, a, b, Options{Kernel: "int8-mx-reference"}, "not small integers"},
	} {
		if err := Mul(tc.c, tc.a, tc.b, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want one with %q", tc.name, err, tc.want)
		}
	}
	bf16, err := quant.NewTensor(quant.BF16, 3, 5)
	if err != nil {
		t.Fatal(err)
	}
	if err := MulBF16(a, a, b, Options{}); err == nil || !strings.Contains(err.Error(), "rowwise bf16") {
		t.Errorf("MulBF16 into mxfp8: got error %v", err)
	}
	bf16.Codes = bf16.Codes[:4]
	if err := MulBF16(bf16, a, b, Options{}); err == nil || !strings.Contains(err.Error(), "4 bytes of codes") {
		t.Errorf("MulBF16 into too few bytes: got error %v", err)
	}
	if _, _, err := Reference(a, make(quant.MXFP8, quant.Rowwise, 5, 32)); err == nil {
		t.Error("Reference of different K: got no error")
	}
}

// TestAllocations checks that a second product of the same size allocates nothing, also with
// parallel threads. testing.AllocsPerRun would use a single processor. The runtime
// occasionally allocates a goroutine or a pool entry, more often on a busy machine, so the
// test takes the mean of the best of several rounds.
func TestAllocations(t *testing.T) {
	slow.Race(t, slow.Allocations)
	slow.Emulated(t, "allocations are those of every processor")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	r := rand.New(rand.NewPCG(10, 11))

	// The runtime caches up to 128 entries for waiting goroutines per processor and allocates
	// new ones until the caches are full. Fill them first.
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, 3, 32), operand(t, r, quant.MXFP8, quant.Rowwise, 100, 32)
	c := tensor.New(3, 100)
	for range 5000 {
		if err := Mul(c, a, b, Options{Threads: 2}); err != nil {
			t.Fatal(err)
		}
	}
	for _, threads := range []int{1, 2} {
		for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Row} {
			for _, m := range []int{3, 100} {
				a, b := operand(t, r, f, quant.Rowwise, m, 128), operand(t, r, f, quant.Rowwise, 100, 128)
				c := tensor.New(m, 100)
				const products, rounds = 200, 6 // the first warms up
				got := uint64(math.MaxUint64)
				for round := 0; round < rounds && got > products/4; round++ {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for range products {
						if err := Mul(c, a, b, Options{Threads: threads}); err != nil {
							t.Fatal(err)
						}
					}
					runtime.ReadMemStats(&after)
					got = after.Mallocs - before.Mallocs
				}
				if got > products/4 {
					t.Errorf("format=%s m=%d threads=%d: got %d allocations in %d products, want 0", f, m, threads, got, products)
				}
			}
		}
	}
}

// TestAllocationsTiers checks that one thread allocates nothing on any tier, also for operands
// that fall back to another kernel.
func TestAllocationsTiers(t *testing.T) {
	slow.Race(t, slow.Allocations)
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.MXINT8, quant.FP8Row, quant.FP8Block, quant.BF16,
			quant.F32} {
			for _, m := range []int{3, 11, 40} {
				r := rand.New(rand.NewPCG(12, 13))
				a, b := operand(t, r, f, quant.Rowwise, m, 64), operand(t, r, f, quant.Rowwise, 100, 64)
				if f.Name == quant.MXINT8.Name {
					b.Scales[5], b.Scales[70] = 1, 1
				}
				c := tensor.New(m, 100)
				if got := testing.AllocsPerRun(20, func() {
					if err := Mul(c, a, b, Options{Threads: 1}); err != nil {
						t.Fatal(err)
					}
				}); got > 0 {
					t.Errorf("format=%s m=%d: got %g allocations per product, want 0", f, m, got)
				}
			}
		}
	})
}
