package gemm_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

func accumulator(t testing.TB, text string) mma.Accumulator {
	t.Helper()
	var a mma.Accumulator
	if err := a.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return a
}

// drawn returns a quantized matrix of values that vary over some binades.
func drawn(t testing.TB, f quant.Format, rows, cols int, seed uint64) *quant.Tensor {
	t.Helper()
	source := rand.New(rand.NewPCG(seed, uint64(rows*cols)))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(source.NormFloat64() * math.Exp2(float64(source.IntN(9)-4)))
	}
	q, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// byHand computes element (i, j) of a product from the definition of the package: one dot product of
// the unit for each interval, and FP32 operations between them.
func byHand(u *mma.Unit, a, b *quant.Tensor, i, j, interval int) float32 {
	k := a.StoredCols()
	perBlock := false
	for _, t := range []*quant.Tensor{a, b} {
		perBlock = perBlock || t.Format.Block.Cols > 0 && u.Scale == nil
	}
	if k == 0 {
		return 0
	}
	if interval == 0 {
		interval = k
	}
	var sum float32
	global := 1.0
	for from := 0; from < k; from += interval {
		n := min(interval, k-from)
		padded := (n + u.K - 1) / u.K * u.K
		codesA, codesB := make([]uint64, padded), make([]uint64, padded)
		var scaleA, scaleB []byte
		for x := range n {
			codesA[x], codesB[x] = code(a, i, from+x), code(b, j, from+x)
		}
		for x := 0; x < padded && u.Scale != nil; x += u.Block {
			sa, sb := byte(u.Scale.Scalar.Encode(1)), byte(u.Scale.Scalar.Encode(1))
			if x < n {
				sa, sb = scaleCode(a, i, from+x), scaleCode(b, j, from+x)
			}
			scaleA, scaleB = append(scaleA, sa), append(scaleB, sb)
		}
		part := float32(u.Out.Value(u.Dot(codesA, codesB, 0, scaleA, scaleB)))
		if perBlock {
			part *= float32(a.Scale(i, from) * b.Scale(j, from))
		}
		sum += part
	}
	switch {
	case u.Scale != nil && a.Format.Global:
		global = float64(a.Global) * float64(b.Global)
	case u.Scale == nil && !perBlock && a.Format.Scaled():
		sum *= float32(a.Scale(i, 0) * b.Scale(j, 0))
	}
	return sum * float32(global)
}

// code returns the code of position k of stored row l.
func code(t *quant.Tensor, l, k int) uint64 {
	row := t.Codes[l*t.RowBytes():][:t.RowBytes()]
	switch t.Format.Element.StoredBits() {
	case 32:
		return uint64(binary.LittleEndian.Uint32(row[4*k:]))
	case 16:
		return uint64(binary.LittleEndian.Uint16(row[2*k:]))
	}
	codes := make([]byte, t.Format.PaddedCols(t.StoredCols()))
	t.Format.Element.Split(codes, row)
	return uint64(codes[k])
}

func scaleCode(t *quant.Tensor, l, k int) byte {
	_, n := t.ScaleShape()
	return t.Scales[l/t.Format.Block.Rows*n+k/t.Format.Block.Cols]
}

// TestAccumulatorThreads compares products through a model with the model applied by hand, for shapes
// around the tiles and any number of threads.
func TestAccumulatorThreads(t *testing.T) {
	slow.Emulated(t, "package mma compares what models of units compute there")
	e5m2 := quant.FP8Tensor
	e5m2.Element, e5m2.Name = format.E5M2, "fp8-tensor-e5m2"
	for i, tc := range []struct {
		accumulator string
		a, b        quant.Format
		interval    int // with which sums are promoted
	}{
		{"hopper-wgmma", quant.FP8Tensor, e5m2, 0},
		{"hopper-wgmma:128", e5m2, quant.FP8Tensor, 128},
		{"hopper-wgmma", quant.FP8Row, quant.FP8Row, 0},
		{"hopper-wgmma", quant.FP8Vec128, quant.FP8Block, 128},
		{"hopper-wgmma:64", quant.FP8Vec128, quant.FP8Vec128, 64},
		{"hopper-wgmma:256", quant.FP8Block, quant.FP8Vec128, 128},
		{"hopper-wgmma", quant.MXFP8, quant.MXFP8, 32},
		{"hopper-wgmma", quant.BF16, quant.BF16, 0},
		{"ampere-mma", quant.F32, quant.F32, 0}, // as TF32
		{"blackwell-mxf8f6f4", quant.MXFP8, quant.MXFP6E3M2, 0},
		{"blackwell-mxf8f6f4:64", quant.MXFP8x32, quant.MXFP8, 64},
		{"blackwell-mxf4", quant.MXFP4, quant.MXFP4, 0},
		{"blackwell-mxf4nvf4", quant.NVFP4, quant.NVFP4x16, 0},
		{"blackwell-mxf4nvf4", quant.MXFP4, quant.MXFP4, 0}, // each scale twice
		{"cdna3-mfma", quant.BF16, quant.BF16, 0},
		{"cdna1-mfma", quant.F32, quant.F32, 0}, // as FP32
	} {
		if i%slow.Stride(1, 4) > 0 {
			continue
		}
		acc := accumulator(t, tc.accumulator)
		u, err := gemm.Unit(acc, tc.a, tc.b)
		if err != nil {
			t.Fatal(err)
		}
		shapes := [][3]int{{3, 5, 72}, {1, 70, 192}, {65, 2, 400}}
		switch tc.accumulator + " " + tc.a.Name {
		case "hopper-wgmma fp8-tensor":
			shapes = append(shapes, [3]int{270, 3, 64}, [3]int{2, 600, 96}, [3]int{1, 1, 1}, [3]int{2, 2, 0})
		case "hopper-wgmma fp8-vec128", "blackwell-mxf8f6f4 mxfp8": // scales beyond the first tile
			shapes = append(shapes, [3]int{270, 3, 160}, [3]int{2, 600, 160})
		}
		for _, s := range shapes {
			t.Run(fmt.Sprintf("%s/%s/%s/%v", tc.accumulator, tc.a, tc.b, s), func(t *testing.T) {
				a, b := drawn(t, tc.a, s[0], s[2], 1), drawn(t, tc.b, s[1], s[2], 2)
				want := tensor.New(s[0], s[1])
				for i := range want.Rows {
					for j := range want.Cols {
						want.Row(i)[j] = byHand(u, a, b, i, j, tc.interval)
					}
				}
				for _, threads := range []int{1, 3} {
					wide := tensor.New(s[0], s[1]+2)
					c := wide.View(0, s[0], 1, s[1]+1)
					if err := gemm.Mul(c, a, b, gemm.Options{Accumulator: acc, Threads: threads}); err != nil {
						t.Fatal(err)
					}
					for i := range c.Rows {
						for j, got := range c.Row(i) {
							if math.Float32bits(got) != math.Float32bits(want.Row(i)[j]) {
								t.Fatalf("%d threads: element (%d, %d): got %v, want %v", threads, i, j, got, want.Row(i)[j])
							}
						}
					}
				}
			})
		}
	}
}

// TestAccumulatorOptionsThreads checks alpha, bias, accumulation into C, BF16 results and packed operands
// of products through a model.
func TestAccumulatorOptionsThreads(t *testing.T) {
	acc := accumulator(t, "hopper-wgmma:128")
	const cols = 520 // more than a tile
	a, b := drawn(t, quant.FP8Tensor, 4, 256, 1), drawn(t, quant.FP8Tensor, cols, 256, 2)
	plain := tensor.New(4, cols)
	if err := gemm.Mul(plain, a, b, gemm.Options{Accumulator: acc}); err != nil {
		t.Fatal(err)
	}
	bias := make([]float32, cols)
	for j := range bias {
		bias[j] = float32(j)
	}
	o := gemm.Options{Accumulator: acc, Alpha: -2, Accumulate: true, Bias: bias}
	packed, err := gemm.Pack(b, a.Format, o)
	if err != nil {
		t.Fatal(err)
	}
	c, d := tensor.New(4, cols), tensor.New(4, cols)
	for i := range c.Data {
		c.Data[i], d.Data[i] = float32(i), float32(i)
	}
	if err := gemm.Mul(c, a, b, o); err != nil {
		t.Fatal(err)
	}
	if err := packed.Mul(d, a, o); err != nil {
		t.Fatal(err)
	}
	for i := range c.Data {
		want := float32(plain.Data[i]*-2) + float32(i) + bias[i%cols]
		if c.Data[i] != want || d.Data[i] != want {
			t.Errorf("element %d: got %v, and %v from a packed operand, want %v", i, c.Data[i], d.Data[i], want)
		}
	}
	rounded, err := quant.NewTensor(quant.BF16, 4, cols)
	if err != nil {
		t.Fatal(err)
	}
	if err := gemm.MulBF16(rounded, a, b, gemm.Options{Accumulator: acc}); err != nil {
		t.Fatal(err)
	}
	for i, got := range rounded.Dequantize(1).Data {
		if want := format.BF16.Decode(format.BF16.Encode(plain.Data[i])); got != want {
			t.Errorf("BF16 element %d: got %v, want %v", i, got, want)
		}
	}
	if k, err := gemm.Choose(a, b, o); err != nil || k.Name != "hopper-wgmma:128" {
		t.Errorf("Choose: got %v, %v, want hopper-wgmma:128", k, err)
	}
	nan := drawn(t, quant.MXFP8, 2, 64, 1)
	nan.Scales[3] = 0xff
	err = gemm.Mul(tensor.New(2, 2), nan, nan, gemm.Options{Accumulator: accumulator(t, "blackwell-mxf8f6f4")})
	if _, ok := err.(*gemm.NaNScale); !ok {
		t.Errorf("a NaN scale: got %v, want a *NaNScale", err)
	}
}

// TestAccumulatorErrors: formats, blocks and intervals that a unit does not support are errors.
func TestAccumulatorErrors(t *testing.T) {
	half := quant.MXFP8
	half.Name, half.Block.Cols = "mxfp8-16", 16
	for _, tc := range []struct {
		accumulator string
		a, b        quant.Format
		kernel      string
		want        string
	}{
		{"hopper-wgmma", quant.NVFP4, quant.NVFP4, "", "accumulate with hopper-wgmma: nvfp4 × nvfp4: hopper-wgmma: unsupported operands " +
			"e2m1×e2m1: use f16×f16"},
		{"hopper-wgmma", quant.BF16, quant.MXFP8, "", "unsupported operands bf16×e4m3"},
		{"hopper-wgmma", quant.MXINT8, quant.MXINT8, "", "int8"},
		{"hopper-wgmma:100", quant.FP8Tensor, quant.FP8Tensor, "", "got a promotion interval of 100 elements, want a multiple of 32"},
		{"hopper-wgmma:96", quant.FP8Vec128, quant.FP8Vec128, "", "got blocks of 128 elements and a promotion interval of 96"},
		{"blackwell-f8f6f4", quant.NVFP4, quant.NVFP4, "", "the unit does not apply the scales: got blocks of 16 elements, want a " +
			"multiple of 32"},
		{"blackwell-mxf8f6f4", half, half, "", "got blocks of 16 elements, want a multiple of 32, the block of the unit's scales"},
		{"hopper-wgmma", quant.FP8Tensor, quant.FP8Tensor, "avx2-f32", "gemm: kernel avx2-f32: accumulates in FP32: omit the kernel"},
	} {
		a, b := drawn(t, tc.a, 2, 128, 1), drawn(t, tc.b, 2, 128, 2)
		c := tensor.New(2, 2)
		c.Data[0] = 7
		err := gemm.Mul(c, a, b, gemm.Options{Accumulator: accumulator(t, tc.accumulator), Kernel: tc.kernel})
		if err == nil || !strings.Contains(err.Error(), tc.want) || c.Data[0] != 7 {
			t.Errorf("got %v and C = %v, want an error with %q and C unchanged", err, c.Data[0], tc.want)
		}
	}
}
