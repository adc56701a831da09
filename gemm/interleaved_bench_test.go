package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// BenchmarkInterleaved compares products of an interleaved operand with those of its rows as they are stored. A rate is that of the
// fastest product, which other programs disturb least.
func BenchmarkInterleaved(b *testing.B) {
	const n, k = 4096, 4096
	for _, inputs := range []quant.Format{quant.MXINT8, quant.BF16} {
		for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXFP8, quant.MXINT8, quant.Q8_0} {
			r := rand.New(rand.NewPCG(1, 2))
			rows := plainOperand(b, r, f, n, k)
			inside, err := Interleave(plainOperand(b, r, f, n, k), inputs, Options{})
			if err != nil {
				continue
			}
			for _, m := range []int{1, 2, 4, 16, 64, 256} {
				a, c := plainOperand(b, r, inputs, m, k), tensor.New(m, n)
				for name, mul := range map[string]func() error{
					"interleaved": func() error { return inside.Mul(c, a, Options{Threads: 1}) },
					"rows":        func() error { return Mul(c, a, rows, Options{Threads: 1}) },
				} {
					b.Run(fmt.Sprintf("a=%s/b=%s/m=%d/%s", inputs, f, m, name), func(b *testing.B) {
						fastest := math.Inf(1)
						for b.Loop() {
							start := time.Now()
							if err := mul(); err != nil {
								b.Fatal(err)
							}
							fastest = min(fastest, time.Since(start).Seconds())
						}
						b.ReportMetric(2*float64(m)*n*k/fastest/1e9, "Gop/s")
					})
				}
			}
		}
	}
}
