package gemm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// plainOperand returns an operand of normally distributed values. Its first block is zero.
func plainOperand(t testing.TB, r *rand.Rand, f quant.Format, n, k int) *quant.Tensor {
	t.Helper()
	x := tensor.New(n, k)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	clear(x.Data[:min(k, 32)])
	b, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// copyOf returns b in new, guarded memory.
func copyOf(t *testing.T, b *quant.Tensor, end guard.Side) *quant.Tensor {
	c := *b
	c.Codes = guard.Copy(t, b.Codes, end)
	if b.Scales != nil {
		c.Scales = guard.Copy(t, b.Scales, end)
	}
	if n := len(b.Scales32); n > 0 {
		c.Scales32 = unsafe.Slice((*float32)(unsafe.Pointer(&guard.Bytes(t, 4*n, end)[0])), n)
		copy(c.Scales32, b.Scales32)
	}
	return &c
}

// TestInterleavedThreads compares products of an interleaved operand with the reference, for numbers of
// rows of A that vector kernels multiply and for more, and its tensor with the original.
func TestInterleavedThreads(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, inputs := range []quant.Format{quant.BF16, quant.MXINT8} {
			t.Run("inputs="+inputs.Name, func(t *testing.T) {
				if !interleaves(inputs) {
					b := plainOperand(t, rand.New(rand.NewPCG(0, 0)), quant.MXFP4, 16, 32)
					if _, err := Interleave(b, inputs, Options{}); !errors.Is(err, errors.ErrUnsupported) {
						t.Errorf("got error %v, want unsupported", err)
					}
					return
				}
				testInterleaved(t, inputs)
			})
		}
	})
}

// interleaves reports whether kernels that may run multiply interleaved operands by inputs.
func interleaves(inputs quant.Format) bool {
	if inputs.Element.Integer {
		return cpu.Uses(cpu.AVX2.Set()) || cpu.Uses(cpu.NEONDot.Set())
	}
	return cpu.Uses(cpu.AVX512.Set()) || floatsInterleaved()
}

// floatsInterleaved reports whether kernels of float32 may run for interleaved operands.
func floatsInterleaved() bool {
	return cpu.Uses(cpu.AVX2.Set()) && !cpu.Uses(cpu.AVX512F.Set()) || cpu.Uses(cpu.NEON.Set())
}

// interleavedFormats lists the formats that kernels that may run multiply by inputs.
func interleavedFormats(inputs quant.Format) []quant.Format {
	if inputs.Element.Integer && !cpu.Uses(cpu.AVX512VNNI.Set()) {
		return []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXINT8, quant.Q8_0}
	}
	if !inputs.Element.Integer && floatsInterleaved() {
		return []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXFP8}
	}
	return []quant.Format{quant.MXFP4, quant.NVFP4}
}

func testInterleaved(t *testing.T, inputs quant.Format) {
	ran := map[string]bool{}
	for i, f := range interleavedFormats(inputs) {
		for trial, s := range []struct{ m, n, k int }{{1, 16, 32}, {2, 48, 64}, {3, 208, 544}, {4, 64, 1536}, {9, 80, 4640}, {40, 96, 2080},
			{1, 64, 9024}} {
			b := plainOperand(t, rand.New(rand.NewPCG(uint64(i), uint64(trial))), f, s.n, s.k)
			inside, err := Interleave(copyOf(t, b, guard.Side(trial%2)), inputs, Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			if u := inside.Tensor(); !bytes.Equal(u.Codes, b.Codes) || !sameBits(u.Dequantize(1).Data, b.Dequantize(1).Data) {
				t.Errorf("%s %d×%d: the tensor differs from the original", f, s.n, s.k)
			}
			for j, with := range []quant.Format{quant.BF16, quant.MXINT8, f, quant.MXFP8, quant.F32} {
				a := plainOperand(t, rand.New(rand.NewPCG(uint64(j), uint64(trial))), with, s.m, s.k)
				k, err := inside.Choose(a, Options{})
				if err != nil {
					t.Fatal(err)
				}
				stride := slow.Stride(1, 9) // each kernel for these operands once
				if (5*trial+j-i-1)%stride != 0 || stride > 1 && !strings.Contains(k.Name, "interleaved") {
					continue
				}
				ran[k.Name] = true
				t.Run(fmt.Sprintf("a=%s/b=%s/m=%d/n=%d/k=%d", with, f, s.m, s.n, s.k), func(t *testing.T) { compareInterleaved(t, a, b, inside) })
			}
		}
	}
	kernels := 0
	for name := range ran {
		if strings.Contains(name, "interleaved") {
			kernels++
		}
	}
	if want := len(interleavedFormats(inputs)); kernels < want {
		t.Errorf("got kernels %v, want %d for interleaved operands among them", ran, want)
	}
}

// TestInterleavedExtremes checks that kernels of integers add all products exactly where these are the largest.
func TestInterleavedExtremes(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		if !interleaves(quant.MXINT8) {
			return
		}
		const m, n, k = 3, 32, 160
		for _, f := range interleavedFormats(quant.MXINT8) {
			r := rand.New(rand.NewPCG(11, 12))
			a, b := plainOperand(t, r, quant.MXINT8, m, k), plainOperand(t, r, f, n, k)
			lowest := byte(0x80)
			if f.Element.Integer {
				lowest = 0x81 // TestInterleavedLowest has the other
			}
			for i := range a.Codes {
				a.Codes[i] = []byte{0x7f, lowest, 0x81}[i/k%3] // largest, lowest and its neighbor
			}
			for i := range a.Scales {
				a.Scales[i] = 127
			}
			extremes := []byte{0x77, 0xff, 0x7f}
			if f.Element.Integer {
				extremes = []byte{0x80, 0x7f, 0x81}
			}
			for i := range b.Codes {
				b.Codes[i] = extremes[i/b.RowBytes()%3]
			}
			for i := range b.Scales {
				b.Scales[i] = byte(f.Scale.Encode(1))
			}
			for i := range b.Scales32 {
				b.Scales32[i] = 1
			}
			b.Global = 1
			want, _, err := Reference(a, b)
			if err != nil {
				t.Fatal(err)
			}
			inside, err := Interleave(b, quant.MXINT8, Options{})
			if err != nil {
				t.Fatal(err)
			}
			c := tensor.New(m, n)
			if err := inside.Mul(c, a, Options{}); err != nil {
				t.Fatal(err)
			}
			for i, w := range want {
				if float64(c.Data[i]) != w {
					t.Fatalf("%s at (%d,%d): got %g, want %g exactly", f, i/n, i%n, c.Data[i], w)
				}
			}
		}
	})
}

// TestInterleavedLowest checks that kernels that move signs to A leave the integer without an opposite to others.
func TestInterleavedLowest(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		r := rand.New(rand.NewPCG(13, 14))
		a, b := plainOperand(t, r, quant.MXINT8, 2, 64), plainOperand(t, r, quant.MXINT8, 16, 64)
		a.Codes[40] = 0x80
		for i := range b.Codes {
			b.Codes[i] = 0x80
		}
		for i := range b.Scales {
			b.Scales[i] = 127
		}
		inside, err := Interleave(copyOf(t, b, guard.End), quant.MXINT8, Options{})
		if errors.Is(err, errors.ErrUnsupported) {
			return // this processor has no kernel for it
		}
		if err != nil {
			t.Fatal(err)
		}
		compareInterleaved(t, a, b, inside)
	})
}

// compareInterleaved compares products of a and interleaved b, by one thread and by two.
func compareInterleaved(t *testing.T, a, b *quant.Tensor, inside *Interleaved) {
	t.Helper()
	want, magnitude, err := Reference(a, b)
	if err != nil {
		t.Fatal(err)
	}
	m, n := a.StoredRows(), b.StoredRows()
	one, two := tensor.New(m, n), tensor.New(m, n)
	if err := errors.Join(inside.Mul(one, a, Options{Threads: 1}), inside.Mul(two, a, Options{Threads: 2})); err != nil {
		t.Fatal(err)
	}
	if !sameBits(one.Data, two.Data) {
		t.Error("the product depends on the number of threads")
	}
	for i, w := range want {
		if got := float64(one.Data[i]); !(math.Abs(got-w) <= bound(a.StoredCols(), 1, magnitude[i])) {
			t.Fatalf("at (%d,%d): got %g, want %g ± %g", i/n, i%n, got, w, bound(a.StoredCols(), 1, magnitude[i]))
		}
	}
}

// TestInterleavedRows checks that a row of A gives the same bits alone and with others that its kernel multiplies.
func TestInterleavedRows(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) { testInterleavedRows(t) })
}

func testInterleavedRows(t *testing.T) {
	const maxRows, n, k = 16, 64, 1120
	for _, with := range []quant.Format{quant.BF16, quant.MXINT8} {
		if !interleaves(with) {
			continue
		}
		for _, f := range interleavedFormats(with) {
			r := rand.New(rand.NewPCG(1, 2))
			b, err := Interleave(plainOperand(t, r, f, n, k), with, Options{})
			if err != nil {
				t.Fatal(err)
			}
			x := tensor.New(maxRows, k)
			for i := range x.Data {
				x.Data[i] = float32(r.NormFloat64())
			}
			rows := func(from, to int) *quant.Tensor {
				a, err := quant.Quantizer{Format: with}.Rowwise(x.View(from, to, 0, k), quant.With{})
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			product := func(from, to int) []float32 {
				a, c := rows(from, to), tensor.New(to-from, n)
				if err := b.Mul(c, a, Options{}); err != nil {
					t.Fatal(err)
				}
				return c.Data
			}
			kernel, err := b.Choose(rows(0, 1), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if kernel.Batch < 2 {
				t.Fatalf("%s × %s: got kernel %s, which does not take 2 rows of interleaved operands", with, f, kernel.Name)
			}
			for m := 2; m <= min(maxRows, kernel.Batch); m++ {
				if got, want := product(0, m)[(m-1)*n:], product(m-1, m); !sameBits(got, want) {
					t.Errorf("%s × %s: the last of %d rows differs from that row alone", with, f, m)
				}
			}
		}
	}
}

// TestInterleaveUnsupported checks that Interleave rejects what its kernels do not multiply, and
// leaves it unchanged.
func TestInterleaveUnsupported(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	damage := func(f quant.Format, index int, scale byte) *quant.Tensor {
		b := plainOperand(t, r, f, 32, 128)
		b.Scales[index] = scale
		return b
	}
	for name, b := range map[string]*quant.Tensor{
		"format":        plainOperand(t, r, quant.MXFP8, 32, 128),
		"rows":          plainOperand(t, r, quant.MXFP4, 31, 128),
		"partial block": plainOperand(t, r, quant.MXFP4, 32, 120),
		"NaN":           damage(quant.MXFP4, 100, 0xff),
		"NaN of zeros":  damage(quant.MXFP4, 0, 0xff),
		"large scale":   damage(quant.MXFP4, 100, maxExponent+1),
		"negative":      damage(quant.NVFP4, 100, byte(format.E4M3.Encode(-1))),
	} {
		before := bytes.Clone(b.Codes)
		scales := bytes.Clone(b.Scales)
		if _, err := Interleave(b, quant.MXINT8, Options{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got error %v, want unsupported", name, err)
		}
		if !bytes.Equal(before, b.Codes) || !bytes.Equal(scales, b.Scales) {
			t.Errorf("%s: the tensor changed", name)
		}
	}
}

// TestInterleavedPanels compares the panels of interleaved operands with those of the original rows.
func TestInterleavedPanels(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		if interleaves(quant.MXINT8) {
			testInterleavedPanels(t)
		}
	})
}

func testInterleavedPanels(t *testing.T) {
	const n, width = 48, 1440
	for _, f := range interleavedFormats(quant.MXINT8) {
		for _, with := range []quant.Format{f, quant.MXFP8} {
			r := rand.New(rand.NewPCG(3, 4))
			a, err := quant.NewTensor(with, 0, width) // which rules out vector kernels
			if err != nil {
				t.Fatal(err)
			}
			inside, err := Interleave(plainOperand(t, r, f, n, width), quant.MXINT8, Options{})
			if err != nil {
				t.Fatal(err)
			}
			whole, err := newPlan(a, inside.Tensor(), rowMajor, Options{})
			if err != nil {
				t.Fatal(err)
			}
			p, why := whole.kernel.plan(a, inside.t, interleaved, Options{})
			if why != "" {
				t.Fatal(why)
			}
			for _, s := range []struct{ k0, kc int }{{0, 1024}, {1024, 416}, {0, 128}, {1024, 96}} {
				var w scratch
				w.reserve(p.kernel, s.kc)
				got, want := make([]byte, p.b.panelBytes(s.kc)), make([]byte, p.b.panelBytes(s.kc))
				for l := 0; l < n; l += p.kernel.Lanes {
					p.b.pack(got, l, s.k0, s.kc, &w)
					whole.b.pack(want, l, s.k0, s.kc, &w)
					if !bytes.Equal(got, want) {
						t.Fatalf("kernel=%s b=%s: the panel of rows %d… over %d positions from %d on differs", p.kernel.Name, f, l, s.kc, s.k0)
					}
				}
			}
		}
	}
}

// TestNilInterleaved checks that a nil and a zero Interleaved are errors.
func TestNilInterleaved(t *testing.T) {
	a, c := mustTensor(t, quant.MXFP4, 1, 32), tensor.New(1, 16)
	for _, b := range []*Interleaved{nil, {}} {
		for _, o := range []Options{{}, {Accumulator: mma.Accumulator{Model: mma.Models()[0]}}} {
			_, chosen := b.Choose(a, o)
			for name, err := range map[string]error{"Mul": b.Mul(c, a, o), "Choose": chosen} {
				if err == nil || !strings.Contains(err.Error(), "b is nil") {
					t.Errorf("%s: got %v, want that b is nil", name, err)
				}
			}
		}
	}
}
