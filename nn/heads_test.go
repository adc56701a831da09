package nn

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestSoftmax compares several rows of different lengths bit for bit with the formula, row by row.
func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, n := range []int{1, 2, 15, 16, 77, 300} {
		for count := 1; count <= softmaxRows; count++ {
			rows, want := make([][]float32, count), make([][]float32, count)
			sinks := []float32{-inf, 0.5, 3, -inf}[:count]
			for i := range rows {
				rows[i] = make([]float32, n+(i+n)%3)
				want[i] = make([]float32, len(rows[i]))
				for j := range rows[i] {
					rows[i][j] = float32(r.NormFloat64())
				}
				top, sum := sinks[i], 0.0
				for _, x := range rows[i] {
					top = max(top, x)
				}
				for j, x := range rows[i] {
					want[i][j] = exp(x - top)
					sum += float64(want[i][j])
				}
				if sinks[i] != -inf {
					sum += float64(exp(sinks[i] - top))
				}
				for j := range want[i] {
					want[i][j] *= float32(1 / sum)
				}
			}
			softmax(rows, sinks)
			for i := range rows {
				if !bytes.Equal(memory.Bytes(rows[i]), memory.Bytes(want[i])) {
					t.Fatalf("row %d of %d: got %v, want %v", i, count, rows[i], want[i])
				}
			}
		}
	}
	row := []float32{1, nan, 2}
	if softmax([][]float32{row}, []float32{-inf}); row[0] == row[0] {
		t.Errorf("got %v for scores with NaN, want NaN", row)
	}
}

// TestOperandInPlace checks that operands in F32 have the codes of the quantizer without a copy.
func TestOperandInPlace(t *testing.T) {
	if !littleEndian {
		t.Skip("codes are little-endian, numbers in memory are not")
	}
	x := tensor.Of(2, 3, []float32{1, -2, 3.5, float32(math.NaN()), 0, 1e-40})
	w := worker{attentionRun: &attentionRun{Attention: &Attention{}}, scope: Scope{Recipe: recipe.Recipe{Activations: quant.F32}}}
	got := w.operand(query, quant.Rowwise, x)
	want, err := quant.Quantizer{Format: quant.F32}.Rowwise(x, quant.With{})
	if err != nil || got.err != nil {
		t.Fatal(err, got.err)
	}
	if &got.t.Codes[0] != &memory.Bytes(x.Data)[0] {
		t.Error("the operand is a copy")
	}
	if !bytes.Equal(got.t.Codes, want.Codes) || got.t.Global != want.Global || got.t.Validate() != nil {
		t.Errorf("got %+v, want %+v", got.t, want)
	}
	if again := w.operand(query, quant.Columnwise, x); again.err != nil || &again.t.Codes[0] == &memory.Bytes(x.Data)[0] {
		t.Error("a columnwise operand is not transposed")
	}
}

// TestLargest puts NaN of either sign at every position, also before and after the largest element.
func TestLargest(t *testing.T) {
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, n := range []int{1, 5, 8, 16, 33, 67} {
			for i := range n {
				for j := range n {
					row := make([]float32, n)
					for k := range row {
						row[k] = float32(-k - 1)
					}
					row[i] = 3
					row[j] = math.Float32frombits(0x7fc00000 | uint32(i%2)<<31)
					want := float32(3)
					if i == j {
						want = -1
						if i == 0 {
							want = -2
						}
					}
					if n == 1 {
						want = float32(math.Inf(-1))
					}
					if got := largest(row); got != want {
						t.Fatalf("largest of %v: got %g, want %g", row, got, want)
					}
				}
			}
		}
	})
}
