package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestVector compares products of few rows with the reference: every batch, pairs of rows of B
// and single rows, several groups and a partial one, guarded memory, and rows that the kernels
// leave to vectorReference.
func TestVector(t *testing.T) {
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		chosen := map[string]bool{}
		for i, f := range formats {
			for trial, s := range []struct{ m, n, k int }{{1, 130, 512}, {2, 67, 1536}, {3, 64, 800}, {4, 1, 96}, {5, 70, 4640}, {8, 33, 9000},
				{1, 65, 20}, {9, 67, 4640}, {16, 65, 544}, {13, 150, 1000}, {1, 67, 8800}} {
				if trial%5 != 3 && (i+trial)%slow.Stride(1, 2) > 0 { // all with inputs in MXINT8, which have kernels of their own
					continue
				}
				if testing.Short() {
					s.n = s.n/2 | 1 // still more than one pass, in pairs and alone
				}
				r := rand.New(rand.NewPCG(uint64(i), uint64(trial)))
				with := []quant.Format{quant.BF16, f, quant.MXFP8, quant.MXINT8, quant.F32}[trial%5]
				a, b := operand(t, r, with, quant.Rowwise, s.m, s.k), operand(t, r, f, quant.Rowwise, s.n, s.k)
				if trial%2 == 1 && len(b.Scales) > 40 {
					b.Scales[3], b.Scales[40] = 0, 0xff
				}
				if trial%3 == 1 && f.Element.StoredBits() == 8 {
					b.Codes[7], b.Codes[len(b.Codes)-1] = 0x7f, 0xff // NaN in most formats
				}
				end := guard.Side(trial % 2)
				b.Codes = guard.Copy(t, b.Codes, end)
				if len(b.Scales) > 0 {
					b.Scales = guard.Copy(t, b.Scales, end)
				}
				if n := len(b.Scales32); n > 0 {
					bytes := guard.Bytes(t, 4*n, end)
					scales := unsafe.Slice((*float32)(unsafe.Pointer(&bytes[0])), n)
					copy(scales, b.Scales32)
					b.Scales32 = scales
				}
				k, err := Choose(a, b, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if k.Batch > 0 {
					chosen[k.Name] = true
				}
				if (i+trial/2)%slow.Stride(1, 4) > 0 {
					continue
				}
				t.Run(fmt.Sprintf("a=%s/b=%s/m=%d/n=%d/k=%d", with, f, s.m, s.n, s.k), func(t *testing.T) {
					want, magnitude, err := Reference(a, b)
					if err != nil {
						t.Fatal(err)
					}
					one := compareWith(t, want, magnitude, a, b, Options{Threads: 1})
					if two := compareWith(t, want, magnitude, a, b, Options{Threads: 2}); !sameBits(one.Clone().Data, two.Clone().Data) {
						for i := range one.Rows {
							for j, v := range one.Row(i) {
								if w := two.At(i, j); v != w && (v == v || w == w) {
									t.Fatalf("at (%[2]d,%[3]d): got %[1]g with two threads, want %[4]g as with one", w, i, j, v)
								}
							}
						}
					}
					start, bias := edgy(r, s.m, s.n), edgy(r, 1, s.n).Row(0)
					c := start.Clone()
					checkNaNScale(t, a, b, Mul(c, a, b, Options{Alpha: -2, Accumulate: true, Bias: bias}))
					for i := range s.m {
						for j := range s.n {
							want := -2*float64(one.At(i, j)) + float64(start.At(i, j)) + float64(bias[j])
							limit := 2*bound(s.k, 2, magnitude[i*s.n+j]) + 0x1p-20*(math.Abs(float64(start.At(i, j)))+math.Abs(float64(bias[j])))
							if got := float64(c.At(i, j)); !(math.Abs(got-want) <= limit) && !(got != got && want != want) {
								t.Fatalf("with options, at (%[2]d,%[3]d): got %[1]g, want %[4]g", got, i, j, want)
							}
						}
					}
					checkBF16(t, a, b, start, Options{Threads: 2})
				})
			}
		}
		want, least := map[cpu.Tier]int{cpu.AMX: 20, cpu.AVX512: 21, cpu.Plain: 1}[tier], 9 // AMX was not counted since 21
		if interleaves(quant.MXINT8) && len(interleavedFormats(quant.MXINT8)) == 4 {
			least = 12 // with those of rows that are interleaved while they are multiplied
		}
		if want > 0 && len(chosen) != want || want == 0 && len(chosen) < least {
			t.Errorf("got %d vector kernels, want %d, or %d at least: %v", len(chosen), want, least, chosen)
		}
	})
}

// TestVectorPassesThreads checks that a row of A gives the same bits alone and with others, in any
// pass. TestInterleavedRows is its counterpart for interleaved operands.
func TestVectorPassesThreads(t *testing.T) {
	const n, width = 67, 1120
	for _, k := range kernels {
		if k.vector == nil || k.vector.interleaved != nil || !cpu.Has(k.needs) {
			continue
		}
		ran := false
		for i, f := range formats {
			if ran && i%slow.Stride(1, 4) > 0 {
				continue
			}
			r := rand.New(rand.NewPCG(uint64(i), 11))
			g := quant.BF16
			if k.panel == panelInt8 {
				g = quant.MXINT8
			}
			x, b := edgy(r, k.rows.most, width), operand(t, r, f, quant.Rowwise, n, width)
			var alone tensor.Dense
			for m := 1; m <= k.rows.most; m += slow.Stride(1, 3) {
				a, err := quant.Quantizer{Format: g}.Rowwise(x.View(0, m, 0, width), quant.With{})
				if err != nil {
					t.Fatal(err)
				}
				if _, why := k.plan(a, b, rowMajor, Options{}); why != "" {
					break
				}
				ran = true
				c := tensor.New(m, n)
				if err := Mul(c, a, b, Options{Kernel: k.Name, Threads: 2}); err != nil {
					t.Fatal(err)
				}
				if !sameBits(c.Data[:len(alone.Data)], alone.Data) {
					t.Fatalf("kernel=%s format=%s: rows differ between a product of %d and of %d", k.Name, f, m, alone.Rows)
				}
				alone = c
			}
		}
		if !ran {
			t.Errorf("kernel=%s supports no format", k.Name)
		}
	}
}

// TestVectorExact checks that int8 vector kernels are exact within a block, for all codes of
// both operands. Scales are small powers of two, so that float32 holds the sums exactly.
func TestVectorExact(t *testing.T) {
	const n = 37
	for _, k := range kernels {
		if !cpu.Has(k.needs) || k.vector == nil || k.vector.interleaved != nil || k.panel != panelInt8 {
			continue
		}
		ran := 0
		for _, f := range formats {
			for _, g := range formats {
				_, integersB := int8Forms[f.Element]
				_, integersA := int8Forms[g.Element]
				if !integersA || !integersB {
					continue
				}
				for trial, width := range []int{32, 512, 1120, 96} {
					r := rand.New(rand.NewPCG(uint64(trial), 3))
					m := 1 + r.IntN(k.rows.most)
					a, b := operand(t, r, g, quant.Rowwise, m, width), operand(t, r, f, quant.Rowwise, n, width)
					if _, why := k.plan(a, b, rowMajor, Options{}); why != "" {
						continue
					}
					ran++
					for _, x := range []*quant.Tensor{a, b} {
						for j := range x.Codes {
							x.Codes[j] = byte(r.Uint32())
						}
						for j := range x.Scales {
							x.Scales[j] = byte(x.Format.Scale.Encode([]float32{1, 2, 4}[r.IntN(3)]))
						}
						x.Global = 1
					}
					want, _, err := Reference(a, b)
					if err != nil {
						t.Fatal(err)
					}
					c, check := framed(t, m, n)
					if err := Mul(c, a, b, Options{Kernel: k.Name}); err != nil {
						t.Fatal(err)
					}
					check()
					for i := range m {
						for j := range n {
							if got := c.At(i, j); float64(got) != want[i*n+j] {
								t.Fatalf("kernel=%s a=%s b=%s %d×%d×%d at (%d,%d): got %g, want %g exactly", k.Name, g, f, m, n, width, i, j, got, want[i*n+j])
							}
						}
					}
				}
			}
		}
		if ran < 8 {
			t.Errorf("kernel=%s: got %d supported pairs of operands", k.Name, ran)
		}
	}
}

// TestVectorIntegers checks that BF16 kernels decode every code of INT8 exactly, the lowest included.
func TestVectorIntegers(t *testing.T) {
	if !cpu.Has(cpu.AVX512.Set()) {
		t.Skip("this processor has no BF16 kernels")
	}
	const codes, width = 256, 544
	for _, f := range []quant.Format{quant.Q8_0, quant.MXINT8} {
		for _, m := range []int{1, 2} { // one row of B, or a pair
			for _, at := range []int{0, 31, 40, 543} {
				r := rand.New(rand.NewPCG(15, uint64(at)))
				a, b := mustTensor(t, quant.BF16, m, width), operand(t, r, f, quant.Rowwise, codes, width)
				for i := range m {
					a.Codes[i*a.RowBytes()+2*at+1] = 0x40 // 2
				}
				for l := range codes {
					b.Codes[l*width+at] = byte(l)
				}
				c := tensor.New(m, codes)
				if err := Mul(c, a, b, Options{Kernel: "vector-" + f.Name + "-avx512"}); err != nil {
					t.Fatal(err)
				}
				for l := range codes {
					want := 2 * f.Element.Decode(uint32(l)) * b.Scale(l, at)
					for i := range m {
						if got := c.At(i, l); got != want {
							t.Errorf("format=%s m=%d at %d, code %#x: got %g, want %g", f, m, at, l, got, want)
						}
					}
				}
			}
		}
	}
}

// TestVectorScales compares products with the reference for every E8M0 scale of A and of B, of
// blocks with and without zeros.
func TestVectorScales(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range []quant.Format{quant.MXFP4, quant.MXFP6E2M3, quant.MXFP6E3M2, quant.MXFP8, quant.MXINT8} {
			for _, zeros := range []bool{false, true} {
				r := rand.New(rand.NewPCG(9, 10))
				a, b := operand(t, r, quant.MXINT8, quant.Rowwise, 3, 512), operand(t, r, f, quant.Rowwise, 256, 512)
				for l := range 256 {
					code := byte(l)
					if l > 225 {
						code = 0xff // products of such scales are not finite
					}
					b.Scales[l*16+l%16] = code
					if zeros {
						n := b.RowBytes() / 16
						clear(b.Codes[l*b.RowBytes()+l%16*n:][:n])
					}
				}
				for i := range a.Scales {
					a.Scales[i] = byte(90 + i)
				}
				t.Run(fmt.Sprintf("format=%s/zeros=%v", f, zeros), func(t *testing.T) { compare(t, a, b, Options{Threads: 2}) })
			}
		}
	})
}

// TestVectorEnds checks that float32 kernels support E8M0 scales up to the largest with finite
// values, and leave larger ones to vectorReference.
func TestVectorEnds(t *testing.T) {
	const width = 576
	for _, k := range kernels {
		if k.vector == nil || k.vector.interleaved != nil || k.panel != panelF32 || k.vector.scale != format.E8M0 || !cpu.Has(k.needs) {
			continue
		}
		ran := 0
		for i, f := range formats {
			r := rand.New(rand.NewPCG(uint64(i), 12))
			x := edgy(r, 3, width)
			for j := range x.Data {
				x.Data[j] *= 0x1p-60
			}
			a, err := quant.Quantizer{Format: quant.F32}.Rowwise(x, quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			b := operand(t, r, f, quant.Rowwise, 64, width)
			if _, why := k.plan(a, b, rowMajor, Options{}); why != "" || f.Scale != format.E8M0 {
				continue
			}
			ran++
			hi := vectorMaxScale(f.Element)
			ends := []byte{0, 1, 127, hi - 1, hi, hi + 1, 254, 255}
			for j := range b.Scales {
				b.Scales[j] = ends[j/18%len(ends)] // a different one for each row
			}
			compare(t, a, b, Options{Kernel: k.Name, Threads: 2})
		}
		if ran == 0 {
			t.Errorf("kernel=%s supports no format", k.Name)
		}
	}
}

// TestMinimumRows checks that one or two rows of BF16 with 4-bit weights use float32 kernels
// where BF16 products are slow.
func TestMinimumRows(t *testing.T) {
	if !cpu.Has(cpu.AVX512.Set()) {
		t.Skip("this processor has no BF16 kernels")
	}
	r := rand.New(rand.NewPCG(13, 14))
	for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4} {
		b := operand(t, r, f, quant.Rowwise, 70, 544)
		for m := 1; m <= 4; m++ {
			k, err := Choose(operand(t, r, quant.BF16, quant.Rowwise, m, 544), b, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := "vector-" + f.Name + "-avx512"
			if m <= 2 && slowBF16(cpu.This()) {
				want = "vector-f32-" + f.Name + "-avx512"
			}
			if k.Name != want {
				t.Errorf("format=%s m=%d: got kernel %s, want %s", f, m, k.Name, want)
			}
		}
	}
}

// TestPackedBatchThreads checks that products with packed weights read the codes for few rows of A,
// but for fewer than with unpacked weights.
func TestPackedBatchThreads(t *testing.T) {
	few := map[string]int{"mxfp8": 4, "mxfp4": 6, "nvfp4": 5} // if a tile kernel follows
	others := map[cpu.Tier]int{cpu.AVX512: 12, cpu.NEON: 2, cpu.NEONDot: 2, cpu.NEONBF16: 2, cpu.NEONI8MM: 2}
	unpacked := map[cpu.Tier]int{cpu.NEON: 4, cpu.NEONDot: 4, cpu.NEONBF16: 4, cpu.NEONI8MM: 4} // at least
	cputest.Run(t, func(t *testing.T, tier cpu.Tier) {
		for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4} {
			most, ok := others[tier]
			if !ok && tier != cpu.Plain {
				most = 8 // of float32 kernels
			}
			if tier == cpu.AMX {
				most = few[f.Name]
			}
			least, ok := unpacked[tier]
			if !ok {
				least = 8
			}
			r := rand.New(rand.NewPCG(7, 8))
			b := operand(t, r, f, quant.Rowwise, 70, 544)
			packed, err := Pack(b, quant.BF16, Options{})
			if err != nil {
				t.Fatal(err)
			}
			vector := 0
			for m := 1; m <= 20; m++ {
				a := operand(t, r, quant.BF16, quant.Rowwise, m, 544)
				with, err := packed.Choose(a, Options{})
				if err != nil {
					t.Fatal(err)
				}
				without, err := Choose(a, b, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if (with.Batch > 0) != (m <= most) || without.Batch == 0 && m <= least {
					t.Errorf("format=%s m=%d: got kernel %s with packed weights and %s without", f, m, with.Name, without.Name)
				}
				if with.Batch > 0 {
					vector++
				}
				got, want := tensor.New(m, 70), tensor.New(m, 70)
				if err := packed.Mul(got, a, Options{}); err != nil {
					t.Fatal(err)
				}
				if err := Mul(want, a, b, Options{Kernel: with.Name}); err != nil {
					t.Fatal(err)
				}
				if !sameBits(got.Data, want.Data) {
					t.Errorf("format=%s m=%d: %s: bits differ with packed weights", f, m, with.Name)
				}
			}
			if vector == 0 && most > 0 {
				t.Errorf("format=%s: got no product that reads the codes", f)
			}
		}
	})
}

// TestVectorWorkspace checks that the workspace of a vector kernel stays below 8 MB for any K,
// and that vector kernels support the row lengths of common models.
func TestVectorWorkspace(t *testing.T) {
	slow.Emulated(t, "rows of a million elements take a minute")
	const usual = 1 << 16
	for _, k := range kernels {
		if k.vector == nil || k.vector.interleaved != nil || !cpu.Has(k.needs) {
			continue
		}
		served := 0
		for _, f := range formats {
			if _, why := k.plan(mustTensor(t, quant.MXINT8, 1, 32), mustTensor(t, f, 1, 32), rowMajor, Options{}); why != "" {
				continue // long rows take time
			}
			for _, m := range []int{1, k.rows.most} {
				for _, width := range []int{usual, 1 << 17, 1 << 20} {
					with := quant.BF16
					if k.panel == panelInt8 {
						with = quant.MXINT8
					}
					a, b := mustTensor(t, with, m, width), mustTensor(t, f, 1, width)
					p, why := k.plan(a, b, rowMajor, Options{})
					if why != "" {
						continue
					}
					if width == usual {
						served++
					}
					j := jobs.New().(*job)
					j.plan, j.cols, j.threads = p, extent{0, p.n}, 1
					j.reserve()
					w := j.workers[0]
					w.vectorTask(0, p.n)
					if !p.b.perRow() { // those scales apply to the sums
						w.vectorReference(0, 0)
					}
					if bytes := 4*len(j.vector.x) + 4*len(w.scratch.values) + 4*len(w.edge) + len(w.tail); bytes > 8<<20 {
						t.Errorf("%s: got %d bytes for %d×%d %s", k.Name, bytes, m, width, f)
					}
				}
			}
		}
		if served == 0 || served%2 != 0 {
			t.Errorf("%s: got %d supported products with K = %d", k.Name, served, usual)
		}
	}
}

func mustTensor(t *testing.T, f quant.Format, rows, cols int) *quant.Tensor {
	t.Helper()
	x, err := quant.NewTensor(f, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
