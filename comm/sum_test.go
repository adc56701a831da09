package comm_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
	"github.com/microscale-go/microscale/quant"
)

// tree is the definition of Sum for one element.
func tree(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	left := 1
	for 2*left < len(x) {
		left *= 2
	}
	return tree(x[:left]) + tree(x[left:])
}

// TestSum compares Sum with its definition, and checks that ranks may sum runs of 2^k parts
// first.
func TestSum(t *testing.T) {
	const n = 600
	for count := 1; count <= 20; count++ {
		parts := make([][]float32, count)
		for i := range parts {
			parts[i] = commtest.Values(i, n)
		}
		got := make([]float32, n)
		comm.Sum(got, parts...)
		for i := range got {
			column := make([]float32, count)
			for p := range parts {
				column[p] = parts[p][i]
			}
			if want := tree(column); math.Float32bits(got[i]) != math.Float32bits(want) {
				t.Fatalf("%d parts, element %d: got %g, want %g", count, i, got[i], want)
			}
		}
		for run := 1; run <= count; run *= 2 {
			if count%run != 0 {
				continue
			}
			var sums [][]float32
			for i := 0; i < count; i += run {
				sum := make([]float32, n)
				comm.Sum(sum, parts[i:i+run]...)
				sums = append(sums, sum)
			}
			again := sums[0] // also the destination
			comm.Sum(again, sums...)
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(again[i]) {
					t.Fatalf("%d parts in runs of %d, element %d: got %g, want %g", count, run, i, again[i], got[i])
				}
			}
		}
	}
}

// TestCut checks that every element has one owner, and parts begin at whole blocks.
func TestCut(t *testing.T) {
	for n := range 300 {
		for ranks := 1; ranks <= 9; ranks++ {
			for _, block := range []int{1, 32, 128} {
				cuts := comm.Cut(n, ranks, block)
				if cuts[0] != 0 || cuts[ranks] != n {
					t.Fatalf("Cut(%d, %d, %d) = %v", n, ranks, block, cuts)
				}
				for i := range ranks {
					if size := cuts[i+1] - cuts[i]; size < 0 || size > (n/ranks/block+2)*block || cuts[i]%block != 0 && cuts[i] != n {
						t.Fatalf("Cut(%d, %d, %d) = %v", n, ranks, block, cuts)
					}
				}
			}
		}
	}
}

// TestReduceScatterMemory checks what sums allocate on each of 4 ranks: the first of FP32 values the three
// quarters that it receives, and later ones nothing, unless the garbage collector has emptied a pool.
func TestReduceScatterMemory(t *testing.T) {
	mxfp8, err := comm.Quantized(quant.Quantizer{Format: quant.MXFP8})
	if err != nil {
		t.Fatal(err)
	}
	const ranks, n = 4, 1 << 20
	for _, wire := range []comm.Wire{comm.F32, comm.BF16, mxfp8} {
		var marks [6]runtime.MemStats
		err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
			src, cuts := make([]float32, n), comm.Cut(n, ranks, wire.Block())
			dst := make([]float32, n/ranks)
			for i := range marks {
				if err := g.Barrier(); err != nil {
					return err
				}
				if g.Rank() == 0 {
					runtime.ReadMemStats(&marks[i])
				}
				if err := g.Barrier(); err != nil {
					return err
				}
				if err := g.ReduceScatter(dst, src, cuts, wire); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		allocated := func(i int) float64 {
			return float64(marks[i+1].TotalAlloc-marks[i].TotalAlloc) / (ranks * 4 * n)
		}
		if got := allocated(0); wire == comm.F32 && (got < 0.75 || got > 0.8) {
			t.Errorf("allocated %.3f times the memory of the values, want 0.75 and a chunk", got)
		}
		if got := min(allocated(1), allocated(2), allocated(3), allocated(4)); got > 0.02 {
			t.Errorf("%s: each later sum allocated at least %.3f times the memory of the values", wire, got)
		}
	}
}
