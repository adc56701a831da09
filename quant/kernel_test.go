package quant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// plainly runs body without kernels.
func plainly(t testing.TB, body func()) {
	t.Helper()
	before := cpu.Best()
	if err := cpu.Force(cpu.Plain); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cpu.Force(before); err != nil {
			t.Fatal(err)
		}
	}()
	body()
}

// eachKernel runs body in every tier with kernels.
func eachKernel(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	cputest.Vectors(t, func(t *testing.T, tier cpu.Tier) {
		if tier != cpu.Plain {
			body(t)
		}
	})
}

// kernelQuantizers are quantizers that kernels serve, each rule and arithmetic
// of each format.
func kernelQuantizers() []Quantizer {
	var list []Quantizer
	for _, f := range Formats() {
		switch f.Scale {
		case format.E8M0:
			for _, rule := range ScaleRules() {
				list = append(list, Quantizer{Format: f, Rule: rule})
			}
			list = append(list,
				Quantizer{Format: f, ExactRatio: true},
				Quantizer{Format: f, Rule: Even, EvenMantissa: 1},
				Quantizer{Format: f, NonFinite: Poison},
				Quantizer{Format: f, Rule: Floor, NonFinite: PoisonZero, SmallestDivisor: 0x1p-126},
				Quantizer{Format: f, NonFinite: PoisonNaN, SmallestDivisor: 1},
				Quantizer{Format: f, ElementNaN: format.KeepSign})
		case nil:
		default:
			for a := range Arithmetic(len(arithmetics)) {
				list = append(list, Quantizer{Format: f, Arithmetic: a})
			}
			if f.Scale == format.F32 {
				list = append(list, Quantizer{Format: f, PowerOfTwo: true}, Quantizer{Format: f, NonFinite: Poison})
			}
		}
	}
	odd := MXFP4
	odd.Name, odd.Block = "e2m1 in 48s", Shape{1, 48}
	return append(list, Quantizer{Format: odd}, Quantizer{Format: MXFP8, NegativeZero: DropZeroInput})
}

func quantizerName(q Quantizer) string {
	return fmt.Sprintf("format=%s/rule=%s/exact=%v/even=%d/arithmetic=%d/pow2=%v/nonfinite=%d/nan=%d/zero=%d",
		q.Format, q.Rule, q.ExactRatio, q.EvenMantissa, q.Arithmetic, q.PowerOfTwo, q.NonFinite, q.ElementNaN, q.NegativeZero)
}

// edgeBlocks fills x with runs of 16 values of one kind each: similar or all magnitudes, zeros,
// subnormals, the ends of the range, ties of every format, and sometimes a NaN or an Inf.
func edgeBlocks(x []float32, r *rand.Rand, nonFinite bool) {
	kind, exponent := 0, 0
	for i := range x {
		if i%16 == 0 {
			kind, exponent = r.IntN(9), 1+r.IntN(254)
		}
		bits := uint32(exponent)<<mantissaBits | r.Uint32()&mantissaMask
		switch kind {
		case 0: // one binade
		case 1, 2: // a few, most numbers near 1
			bits = uint32(127-r.IntN(12))<<mantissaBits | r.Uint32()&mantissaMask
		case 3: // all
			bits = uint32(r.IntN(255))<<mantissaBits | r.Uint32()&mantissaMask
		case 4: // short significands: ties, and amaxes at the steps of the rules
			bits = uint32(max(exponent-r.IntN(8), 0))<<mantissaBits | r.Uint32()&mantissaMask>>18<<18
		case 5: // and their neighbors
			bits = uint32(max(exponent-r.IntN(8), 1))<<mantissaBits | r.Uint32()&mantissaMask>>18<<18 + uint32(r.IntN(3)) - 1
		case 6:
			bits = 0
		case 7: // subnormal
			bits &= mantissaMask
		case 8: // the ends
			bits = []uint32{0, 1, exponentMask - 1, 1 << mantissaBits}[r.IntN(4)]
		}
		if nonFinite && r.IntN(2000) == 0 {
			bits = []uint32{exponentMask, exponentMask + 1, absMask}[r.IntN(3)]
		}
		x[i] = math.Float32frombits(bits | r.Uint32()&(1<<31))
	}
}

// sameTensor reports the first difference of two tensors.
func sameTensor(t *testing.T, got, want *Tensor) {
	t.Helper()
	if i := firstDifference(got.Scales, want.Scales); i >= 0 {
		t.Fatalf("scale %d is %#x, want %#x", i, got.Scales[i], want.Scales[i])
	}
	for i, s := range want.Scales32 {
		if g := got.Scales32[i]; math.Float32bits(g) != math.Float32bits(s) {
			t.Fatalf("scale %d is %v, want %v", i, g, s)
		}
	}
	if i := firstDifference(got.Codes, want.Codes); i >= 0 {
		t.Fatalf("byte %d, of %d per row, is %#x, want %#x", i, want.RowBytes(), got.Codes[i], want.Codes[i])
	}
	if math.Float32bits(got.Amax) != math.Float32bits(want.Amax) || got.Global != want.Global {
		t.Fatalf("amax %v and global scale %v, want %v and %v", got.Amax, got.Global, want.Amax, want.Global)
	}
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestKernelsQuantize compares every tier with the Go twins, for whole and partial groups and
// blocks, and for views with gaps between their rows.
func TestKernelsQuantize(t *testing.T) {
	shapes := [][2]int{{1, 1}, {3, 15}, {2, 33}, {1, 512}, {2, 513}, {5, 96}, {3, 1000}, {9, 2048}, {130, 144}, {4200, 37}}
	r := rand.New(rand.NewPCG(1, 2))
	for n, q := range kernelQuantizers() {
		t.Run(quantizerName(q), func(t *testing.T) {
			var sources []tensor.Dense
			var want []*Tensor
			directions := []func(tensor.Dense, With) (*Tensor, error){q.Rowwise, q.Columnwise}
			for i, shape := range shapes {
				if shape[0] > 1000 && n%slow.Stride(3, 42) > 0 || (n+i)%slow.Stride(1, 5) > 0 {
					continue // what follows from the size does not depend on the rule
				}
				x := tensor.New(shape[0], shape[1]+i%2)
				edgeBlocks(x.Data, r, i%3 != 0)
				x = x.View(0, shape[0], i%2, shape[1]+i%2) // every other one has gaps
				sources = append(sources, x)
				plainly(t, func() {
					for _, d := range directions {
						want = append(want, must(t)(d(x, With{})))
					}
				})
			}
			eachKernel(t, func(t *testing.T) {
				for i, x := range sources {
					for j, d := range directions {
						sameTensor(t, must(t)(d(x, With{})), want[len(directions)*i+j])
					}
				}
			})
		})
	}
}

// TestKernelsBF16: a BF16 source gives the bits of its values in float32, in
// every tier, filled into a tensor that held others.
func TestKernelsBF16(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		r := rand.New(rand.NewPCG(9, 10))
		for n, q := range append(kernelQuantizers(), Quantizer{Format: BF16}, Quantizer{Format: NVFP4, Hadamard: true}) {
			t.Run(quantizerName(q), func(t *testing.T) {
				for i, shape := range [][2]int{{0, 16}, {3, 0}, {3, 16}, {2, 528}, {5, 96}, {9, 2048}, {2, 1008}, {129, 160}} {
					if (n+i)%slow.Stride(1, 5) > 0 {
						continue
					}
					values := make([]float32, shape[0]*(shape[1]+i%2))
					edgeBlocks(values, r, i%3 != 0)
					raw := make([]byte, 2*len(values))
					for j, v := range values {
						binary.LittleEndian.PutUint16(raw[2*j:], uint16(math.Float32bits(v)>>16))
					}
					x := tensor.OfBF16(shape[0], shape[1]+i%2, raw)
					x.Cols = shape[1] // every other one has gaps
					want, err := q.Rowwise(x.Dense(), With{})
					if arithmetics[q.Arithmetic].typed { // the dtype of the source matters
						want, err = q.ReferenceBF16(x, Rowwise, With{})
					}
					if err != nil {
						t.Fatal(err)
					}
					into := decodeTensor(t, q.Format, shape[0], shape[1], r)
					got, err := q.RowwiseBF16(x, With{Into: into})
					if err != nil {
						t.Fatal(err)
					}
					if got != into {
						t.Fatal("the tensor to fill is not the one returned")
					}
					sameTensor(t, got, want)
					if a, b := Amax(x, 0), Amax(x.Dense(), 0); a != b {
						t.Errorf("the amax is %v, in float32 %v", a, b)
					}
				}
			})
		}
	})
}

// TestKernelsTraining compares stochastic rounding, the Hadamard transform and blocks of several
// rows with the Go twins, in both directions.
func TestKernelsTraining(t *testing.T) {
	var list []Quantizer
	for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP4, NVFP4, FP8Vec128, FP8Row, NVFP4x16, MXFP8x32, FP8Block} {
		list = append(list, Quantizer{Format: f, Rounding: format.Stochastic}, Quantizer{Format: f})
		if f.Block.Cols%hadamardSize == 0 && f.Block.Rows == 1 {
			list = append(list, Quantizer{Format: f, Hadamard: true}, Quantizer{Format: f, Hadamard: true, Rounding: format.Stochastic})
		}
	}
	list = append(list,
		Quantizer{Format: MXFP4, Rounding: format.Stochastic, NonFinite: Poison},
		Quantizer{Format: MXFP8, Rounding: format.Stochastic, Rule: Floor, NonFinite: PoisonZero, SmallestDivisor: 0x1p-126},
		Quantizer{Format: NVFP4, Rounding: format.Stochastic, Arithmetic: DecodeFirst},
		Quantizer{Format: NVFP4, Rounding: format.Stochastic, NegativeZero: DropNegativeZero},
		Quantizer{Format: MXINT8, Rounding: format.Stochastic})
	random := &Stream{Seed: 0x123456789abcdef0, Step: 7, Tensor: 8, Operand: 3}
	r := rand.New(rand.NewPCG(15, 16))
	for n, q := range list {
		for i, shape := range [][2]int{{1, 16}, {48, 48}, {16, 80}, {33, 50}, {64, 512}, {37, 131}, {160, 272}} {
			if q.Hadamard && (shape[0]%hadamardSize > 0 || shape[1]%hadamardSize > 0) || (n+i)%slow.Stride(1, 4) > 0 {
				continue
			}
			x := tensor.New(shape[0], shape[1])
			edgeBlocks(x.Data, r, i%2 == 0)
			with := With{Random: random, FirstRow: 3 * i}
			for _, d := range []func(Quantizer, tensor.Dense, With) (*Tensor, error){Quantizer.Rowwise, Quantizer.Columnwise} {
				if q.Hadamard && shape[0] < hadamardSize {
					continue
				}
				var want *Tensor
				plainly(t, func() { want = must(t)(d(q, x, with)) })
				eachKernel(t, func(t *testing.T) { sameTensor(t, must(t)(d(q, x, with)), want) })
			}
		}
	}
}

// must returns a function that fails the test on an error.
func must(t testing.TB) func(*Tensor, error) *Tensor {
	return func(q *Tensor, err error) *Tensor {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
}

// TestRowwiseColumnwiseThreads compares the copies of RowwiseColumnwise with those of Rowwise and Columnwise.
func TestRowwiseColumnwiseThreads(t *testing.T) {
	random := &Stream{Seed: 1}
	cputest.Vectors(t, func(t *testing.T, tier cpu.Tier) {
		r := rand.New(rand.NewPCG(17, 18))
		for n, pair := range [][2]Quantizer{
			{{Format: MXFP8}, {Format: MXFP8}},
			{{Format: MXFP4}, {Format: MXFP8E5M2}},
			{{Format: NVFP4}, {Format: NVFP4, Hadamard: true, Rounding: format.Stochastic}},
			{{Format: FP8Tensor}, {Format: FP8Tensor}},
			{{Format: BF16}, {Format: MXFP8}},
		} {
			for _, shape := range [][2]int{{0, 16}, {16, 16}, {48, 40}, {96, 48}, {160, 2080}, {1088, 1024}} {
				if 4*shape[0]*shape[1] >= streamBytes && (tier == cpu.Plain || n%slow.Stride(1, 5) > 0) {
					continue // plain does not tell large tensors from others
				}
				x := tensor.New(shape[0], shape[1])
				edgeBlocks(x.Data, r, shape[0]%64 > 0)
				row, col := Copy{Quantizer: pair[0]}, Copy{pair[1], With{Random: random}}
				rows, columns, err := RowwiseColumnwise(x, row, col)
				if err != nil {
					t.Fatal(err)
				}
				sameTensor(t, rows, must(t)(row.Quantizer.Rowwise(x, row.With)))
				sameTensor(t, columns, must(t)(col.Quantizer.Columnwise(x, col.With)))
			}
		}
	})
	if _, _, err := RowwiseColumnwise(tensor.New(2, 2), Copy{Quantizer: Quantizer{Format: MXFP8}},
		Copy{Quantizer: Quantizer{Format: MXFP8, Rounding: format.Stochastic}}); err == nil {
		t.Error("stochastic rounding without a stream")
	}
}

// TestKernelsRandom compares random bits of many elements with those of each.
func TestKernelsRandom(t *testing.T) {
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		s := Stream{Seed: 0xfedcba9876543210, Step: 1<<32 - 1, Tensor: 1<<24 - 1, Operand: 127, Direction: Columnwise}
		var words []uint32
		for _, first := range []uint64{0, 1, 3, 1<<34 - 9, 1<<62 + 2} {
			for _, n := range []int{0, 1, 5, 31, 32, 33, 100} {
				c := s.philoxConstants()
				for i, got := range c.bits(&words, first, n) {
					if want := s.At(first + uint64(i)); got != want {
						t.Fatalf("the bits of element %d are %#x, want %#x", first+uint64(i), got, want)
					}
				}
			}
		}
	})
}

// TestKernelsLargeThreads quantizes sources that are wider than a tile and whose codes are written by
// non-temporal stores.
func TestKernelsLargeThreads(t *testing.T) {
	const rows, cols = 260, 8320
	r := rand.New(rand.NewPCG(13, 14))
	x := tensor.New(rows, cols)
	edgeBlocks(x.Data, r, false)
	x.Set(3, 700, float32(math.Inf(1)))
	x.Set(200, 8200, float32(math.NaN()))
	raw := make([]byte, 2*len(x.Data))
	for i, v := range x.Data {
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(math.Float32bits(v)>>16))
	}
	xs := tensor.OfBF16(rows, cols, raw)
	if len(raw) < streamBytes || 4*cols*FP8Block.Block.Rows <= tileBytes/2 {
		t.Fatal("the matrix is too small")
	}
	// Goroutines share the amax of NVFP4 and the rows of FP8Row, which a stride of 4 takes.
	for i, f := range []Format{NVFP4, MXFP8, MXFP4, MXINT8, FP8Row, FP8Vec128, FP8Block, FP8Tensor} {
		if i%slow.Stride(1, 4) > 0 {
			continue
		}
		q := Quantizer{Format: f}
		var want, wantRaw *Tensor
		plainly(t, func() {
			want, _ = q.Rowwise(x, With{})
			wantRaw, _ = q.RowwiseBF16(xs, With{})
		})
		eachKernel(t, func(t *testing.T) {
			got, err := q.Rowwise(x, With{})
			if err != nil {
				t.Fatal(err)
			}
			sameTensor(t, got, want)
			if got, err = q.RowwiseBF16(xs, With{}); err != nil {
				t.Fatal(err)
			}
			sameTensor(t, got, wantRaw)
		})
	}
}

// TestFactorsOfKernels checks that kernels encode all ordinary blocks by plain factors, which
// multiply in all blocks of a quantizer or divide in all.
func TestFactorsOfKernels(t *testing.T) {
	const n = 3 * scaleUnit
	r := rand.New(rand.NewPCG(31, 32))
	for _, q := range kernelQuantizers() {
		if !q.Format.Scaled() || q.Format.PerTensor() {
			continue
		}
		x := tensor.Of(1, n, ordinary(n, r))
		amax := Amax(x, 1)
		o := new(output)
		o.prepare(&q, denseSource(x), Rowwise, With{Amax: &amax})
		w := new(worker)
		for i, v := range x.Data {
			grow(&w.amaxes, n)[i] = max(math.Float32bits(v)&absMask, math.Float32bits(0x1p-20)) // blocks of zeros may be left to it
		}
		o.scales = nil
		w.scale(o, n, nil)
		for _, i := range w.exceptional {
			if f := w.blocks[i]; f.isPlain() && f.value > 0 {
				t.Errorf("%s: block %d of amax %g is left to the reference", quantizerName(q), i, x.Data[i])
			}
		}
		for i, f := range w.blocks[:n] {
			if f.isFactor() && f.divide != o.divides {
				t.Errorf("%s: block %d divides: %t, and the output: %t", quantizerName(q), i, f.divide, o.divides)
			}
		}
	}
}
