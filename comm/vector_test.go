package comm_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
	"github.com/microscale-go/microscale/quant"
)

// TestVectors sums vectors of slices that end within chunks, with one and with three goroutines for each
// rank, and compares the bits with those of a single slice.
func TestVectors(t *testing.T) {
	const ranks = 2
	lengths := []int{5, 40_000, 0, 1, 70_000, 33}
	mxfp8, err := comm.Quantized(quant.Quantizer{Format: quant.MXFP8})
	if err != nil {
		t.Fatal(err)
	}
	for _, wire := range []comm.Wire{comm.F32, comm.BF16, mxfp8} {
		for _, threads := range []int{1, 3} {
			err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
				g = g.Threads(threads)
				parts := make([]comm.Vector, ranks)
				var want []float32
				for i := range parts {
					var sum []float32
					for rank := range ranks {
						var whole []float32
						for k, n := range lengths {
							x := commtest.Values(100*rank+10*i+k, n)
							if rank == g.Rank() {
								parts[i] = append(parts[i], slices.Clone(x))
							}
							whole = append(whole, x...)
						}
						comm.Round(whole, whole, wire)
						if rank == 0 {
							sum = whole
						} else {
							comm.Sum(sum, sum, whole)
						}
					}
					comm.Round(sum, sum, wire)
					want = append(want, sum...)
				}
				if err := g.StartReduceScatter(parts, wire).Wait(); err != nil {
					return err
				}
				if err := g.StartAllGatherFloats(parts, wire).Wait(); err != nil {
					return err
				}
				got := slices.Concat(slices.Concat(parts...)...)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						return fmt.Errorf("%s, %d threads: value %d is %g, want %g", wire, threads, i, got[i], want[i])
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestChunks: the chunks of a vector are its values in order, of 32768 but for the last.
func TestChunks(t *testing.T) {
	v := comm.Vector{commtest.Values(1, 40_000), nil, commtest.Values(2, 30_000), commtest.Values(3, 5)}
	var got []float32
	var sizes []int
	for x := range v.Chunks() {
		got, sizes = append(got, x...), append(sizes, len(x))
	}
	if want := slices.Concat(v...); !slices.Equal(got, want) || fmt.Sprint(sizes) != "[32768 32768 4469]" {
		t.Errorf("chunks of %v, %d values, want %d", sizes, len(got), len(want))
	}
	for x := range (comm.Vector{}).Chunks() {
		t.Errorf("an empty vector has the chunk %v", x)
	}
}
