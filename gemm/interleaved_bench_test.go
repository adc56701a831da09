package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// BenchmarkInterleaved compares products of an interleaved operand with those of its rows as they are stored.
func BenchmarkInterleaved(b *testing.B) {
	const n, k = 4096, 4096
	for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXINT8, quant.Q8_0} {
		r := rand.New(rand.NewPCG(1, 2))
		rows := plainOperand(b, r, f, n, k)
		inside, err := Interleave(plainOperand(b, r, f, n, k), quant.MXINT8, Options{})
		if err != nil {
			b.Skip(err)
		}
		for _, m := range []int{1, 4, 16, 64, 256} {
			a, c := plainOperand(b, r, quant.MXINT8, m, k), tensor.New(m, n)
			for name, mul := range map[string]func() error{
				"interleaved": func() error { return inside.Mul(c, a, Options{Threads: 1}) },
				"rows":        func() error { return Mul(c, a, rows, Options{Threads: 1}) },
			} {
				b.Run(fmt.Sprintf("b=%s/m=%d/%s", f, m, name), func(b *testing.B) {
					for b.Loop() {
						if err := mul(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(2*float64(m)*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
				})
			}
		}
	}
}
