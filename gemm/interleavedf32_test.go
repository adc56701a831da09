package gemm

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// cast returns x in an unscaled format.
func cast(t *testing.T, f quant.Format, x tensor.Dense) *quant.Tensor {
	t.Helper()
	a, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestInterleavedE4M3 multiplies every number of E4M3, with zeros around it, by ones, the largest elements that kernels amplify, and
// elements that they leave to others.
func TestInterleavedE4M3(t *testing.T) {
	const n, k, block = interleavedRows, 2048, 32
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		if !floatsInterleaved() {
			return
		}
		b := plainOperand(t, rand.New(rand.NewPCG(1, 1)), quant.MXFP8, n, k)
		clear(b.Codes)
		for i := range b.Scales {
			b.Scales[i] = byte(format.E8M0.Bias)
		}
		for code := range 256 {
			if code&0x7f != 0x7f {
				b.Codes[code%n*k+code/n*block+code%block] = byte(code)
			}
		}
		inside, err := Interleave(b, quant.BF16, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, with := range []quant.Format{quant.BF16, quant.F32} {
			for _, element := range []float32{1, 1 << 26, 1 << 27, 0x1p-40} {
				for part := range 256 / n {
					x := tensor.New(1, k)
					for i := range block {
						x.Data[part*block+i] = element
					}
					a, y := cast(t, with, x), tensor.New(1, n)
					kernel, err := inside.Choose(a, Options{})
					want := map[bool]string{true: "vector-f32-fp8-interleaved-neon", false: "vector-f32-fp8-interleaved-avx2"}[cpu.Uses(cpu.NEON.Set())]
					if err != nil || (kernel.Name == want) != (element < 1<<27 || cpu.Uses(cpu.NEON.Set())) {
						t.Fatalf("%s %g: got the kernel %s, %v", with, element, kernel.Name, err)
					}
					if err := inside.Mul(y, a, Options{Threads: 1}); err != nil {
						t.Fatal(err)
					}
					for row, got := range y.Data {
						code := part*n + row
						if want := format.E4M3.Decode(uint32(code)) * element; code&0x7f != 0x7f && got != want {
							t.Errorf("%s: %#x · %g: got %g, want %g", with, code, element, got, want)
						}
					}
				}
			}
		}
	})
}

// TestInterleavedSubnormal checks which numbers of subnormal and NaN codes of E4M3 Interleave rejects.
func TestInterleavedSubnormal(t *testing.T) {
	const n, k = 32, 1024
	for _, tc := range []struct {
		code  byte
		count int
		ok    bool
	}{{0, n * k, true}, {0x08, n * k, true}, {0x87, n * k / 1024, true}, {0x01, n*k/1024 + 1, false}, {0x7f, 1, false}, {0xff, 1, false},
		{0x7e, n * k, true}} {
		codes := slices.Repeat([]byte{0x48}, n*k)
		for i := range tc.count {
			codes[len(codes)-1-i] = tc.code
		}
		if got := mostlyNormal(codes); got != tc.ok {
			t.Errorf("%d codes %#x: got %v, want %v", tc.count, tc.code, got, tc.ok)
		}
	}
	if !floatsInterleaved() {
		return
	}
	b := plainOperand(t, rand.New(rand.NewPCG(1, 1)), quant.MXFP8, n, k)
	b.Codes[100] = 0x7f
	if _, err := Interleave(b, quant.BF16, Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("NaN: got error %v, want unsupported", err)
	}
}

// TestBelow compares below with a comparison of each number, for numbers near the limit in every position.
func TestBelow(t *testing.T) {
	const limit = 1 << 27
	for _, f := range []quant.Format{quant.BF16, quant.F32} {
		for length := 1; length <= 9; length++ {
			for at := range length {
				for _, word := range []uint32{0x4cff0000, 0x4d000000, 0xccff0000, 0xcd000000, 0x7f800000, 0xffc00000, 0} {
					x := tensor.New(1, length)
					x.Data[at] = math.Float32frombits(word)
					a := cast(t, f, tensor.New(1, length))
					if bytes := f.Element.StoredBits() / 8; bytes == 2 {
						binary.LittleEndian.PutUint16(a.Codes[2*at:], uint16(word>>16))
					} else {
						binary.LittleEndian.PutUint32(a.Codes[4*at:], word)
					}
					want := math.Abs(float64(x.Data[at])) < limit
					if got := (&side{t: a}).below(limit); got != want {
						t.Errorf("%s: element %d of %d is %g: got %v, want %v", f, at, length, x.Data[at], got, want)
					}
				}
			}
		}
	}
	if (&side{t: plainOperand(t, rand.New(rand.NewPCG(1, 1)), quant.MXFP8, 1, 32)}).below(limit) {
		t.Error("got true for a block format")
	}
}
