package gemm

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestBF16PartsThreads: MulBF16 computes parts of bf16NC columns, whose bias begins within
// Options.Bias. One row of A takes a vector kernel, several another one.
func TestBF16PartsThreads(t *testing.T) {
	const n = 2*bf16NC + 5
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		r := rand.New(rand.NewPCG(31, 32))
		bias := make([]float32, n)
		for i := range bias {
			bias[i] = float32(i)
		}
		for _, f := range []quant.Format{quant.MXFP8, quant.FP8Row, quant.BF16} {
			for _, m := range []int{1, 2, 40} {
				for _, k := range []int{0, 32} {
					a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
					start := tensor.New(m, n)
					for _, accumulate := range []bool{false, true} {
						checkBF16(t, a, b, start, Options{Bias: bias, Accumulate: accumulate})
					}
				}
			}
		}
	})
}

// TestBlocksAcrossChunksThreads multiplies operands whose blocks do not divide the chunks of
// a kernel: a chunk begins within a block.
func TestBlocksAcrossChunksThreads(t *testing.T) {
	const m, n, k = 3, 20, bf16KC + 300
	r := rand.New(rand.NewPCG(33, 34))
	for _, extent := range []int{24, 96, 640, bf16KC + 100} {
		f := quant.Format{Name: fmt.Sprintf("blocks of %d", extent), Element: format.E4M3, Scale: format.F32,
			Block: quant.Shape{Rows: 1, Cols: extent}}
		a, b := operand(t, r, f, quant.Rowwise, m, k), operand(t, r, f, quant.Rowwise, n, k)
		cputest.Run(t, func(t *testing.T, _ cpu.Tier) { everyKernel(t, a, b) })
	}
}

// TestLongBias: a bias must have as many elements as C has columns.
func TestLongBias(t *testing.T) {
	const m, n, k = 2, 7, 32
	r := rand.New(rand.NewPCG(35, 36))
	a, b := operand(t, r, quant.MXFP8, quant.Rowwise, m, k), operand(t, r, quant.MXFP8, quant.Rowwise, n, k)
	for _, length := range []int{0, n - 1, n + 1, 2 * n} {
		c := tensor.New(m, n)
		err := Mul(c, a, b, Options{Bias: make([]float32, length)})
		if err == nil || !strings.Contains(err.Error(), "bias") {
			t.Errorf("a bias of %d elements for %d columns: %v", length, n, err)
		}
	}
}
