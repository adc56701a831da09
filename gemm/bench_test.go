package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// random returns n lines along k in the format, of normally distributed values.
func random(b *testing.B, f quant.Format, n, k int) *quant.Tensor {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	d := tensor.New(n, k)
	for i := range d.Data {
		d.Data[i] = float32(r.NormFloat64())
	}
	x, err := quant.Quantizer{Format: f}.Rowwise(d, quant.With{})
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// rate reports what a product of 2·m·n·k operations reached.
func rate(b *testing.B, m, n, k int) {
	b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkMul(b *testing.B) {
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP6E3M2, quant.MXFP6E2M3, quant.MXINT8, quant.MXFP4, quant.NVFP4, quant.FP8Tensor, quant.FP8Row, quant.FP8Vec128, quant.FP8Block, quant.BF16, quant.F32} {
		for _, s := range []struct{ m, n, k, threads int }{{2048, 2048, 2048, 1}, {2048, 2048, 2048, 2}, {512, 512, 512, 1}, {512, 512, 512, 2}} {
			b.Run(fmt.Sprintf("format=%s/m=%d/n=%d/k=%d/threads=%d", f, s.m, s.n, s.k, s.threads), func(b *testing.B) {
				x, w := random(b, f, s.m, s.k), random(b, f, s.n, s.k)
				c := tensor.New(s.m, s.n)
				for b.Loop() {
					if err := gemm.Mul(c, x, w, gemm.Options{Threads: s.threads}); err != nil {
						b.Fatal(err)
					}
				}
				rate(b, s.m, s.n, s.k)
			})
		}
	}
}

func BenchmarkPacked(b *testing.B) {
	const n, k = 2048, 2048
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4} {
		w := random(b, f, n, k)
		packed, err := gemm.Pack(w, f, gemm.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("format=%s/m=%d/n=%d/k=%d/threads=1", f, m, n, k), func(b *testing.B) {
				x := random(b, f, m, k)
				c := tensor.New(m, n)
				for b.Loop() {
					if err := packed.Mul(c, x, gemm.Options{Threads: 1}); err != nil {
						b.Fatal(err)
					}
				}
				rate(b, m, n, k)
			})
		}
	}
}
