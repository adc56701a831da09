package bench_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// random returns an n×k tensor of normally distributed values in the format.
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

// measure times a product of a and w. It reports the rate, and its fraction of the instruction
// peak of the kernel that choose returns, measured just before.
func measure(b *testing.B, a, w *quant.Tensor, threads int, choose func() (gemm.Kernel, error), mul func() error) {
	b.Helper()
	k, err := choose()
	if err != nil {
		b.Fatal(err)
	}
	team, err := bench.NewTeam(threads)
	if err != nil {
		b.Skipf("no peak to compare to: %v", err)
	}
	defer team.Close()
	peak, err := team.Peak(k.Peak, 50*time.Millisecond)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		// This is the first pinned thread; its goroutines run on the others.
		team.Time(func(worker int) {
			if worker == 0 {
				err = mul()
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	work := 2 * float64(a.StoredRows()) * float64(w.StoredRows()) * float64(a.StoredCols()) * float64(b.N)
	rate := work / b.Elapsed().Seconds() / 1e9
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(rate/peak.Rate(), "of-peak")
}

// BenchmarkMul measures products that pack both operands.
func BenchmarkMul(b *testing.B) {
	for _, f := range []quant.Format{
		quant.MXFP8, quant.MXFP8E5M2, quant.MXFP6E3M2, quant.MXFP6E2M3, quant.MXINT8, quant.MXFP4, quant.NVFP4,
		quant.FP8Tensor, quant.FP8Row, quant.FP8Vec128, quant.FP8Block, quant.BF16, quant.F32,
	} {
		for _, n := range []int{512, 2048} {
			x := random(b, f, n, n)
			c := tensor.New(n, n)
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("format=%s/m=%d/n=%d/k=%d/threads=%d", f, n, n, n, threads), func(b *testing.B) {
					o := gemm.Options{Threads: threads}
					measure(b, x, x, threads, func() (gemm.Kernel, error) { return gemm.Choose(x, x, o) }, func() error { return gemm.Mul(c, x, x, o) })
				})
			}
		}
	}
}

// BenchmarkPacked measures products of few rows with packed weights.
func BenchmarkPacked(b *testing.B) {
	const n, k = 2048, 2048
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4} {
		w := random(b, f, n, k)
		packed, err := gemm.Pack(w, f, gemm.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range []int{16, 64, 256} {
			a, c := random(b, f, m, k), tensor.New(m, n)
			b.Run(fmt.Sprintf("format=%s/m=%d/n=%d/k=%d/threads=1", f, m, n, k), func(b *testing.B) {
				o := gemm.Options{Threads: 1}
				measure(b, a, w, 1, func() (gemm.Kernel, error) { return packed.Choose(a, o) }, func() error { return packed.Mul(c, a, o) })
			})
		}
	}
}

// BenchmarkVector measures products of BF16 rows with unpacked weights in the third-level
// cache or in DRAM. The rate in bytes counts the weights.
func BenchmarkVector(b *testing.B) {
	const n, k = 16384, 4096
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4} {
		w := random(b, f, n, k)
		for _, m := range []int{1, 2, 4, 8} {
			a, c := random(b, quant.BF16, m, k), tensor.New(m, n)
			b.Run(fmt.Sprintf("format=%s/m=%d/n=%d/k=%d/threads=1", f, m, n, k), func(b *testing.B) {
				b.SetBytes(int64(len(w.Codes) + len(w.Scales)))
				o := gemm.Options{Threads: 1}
				measure(b, a, w, 1, func() (gemm.Kernel, error) { return gemm.Choose(a, w, o) }, func() error { return gemm.Mul(c, a, w, o) })
			})
		}
	}
}
