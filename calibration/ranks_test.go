package calibration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/tensor"
)

// TestCollectorRanks divides windows of two layers with experts, some of which no token of a rank reaches, among ranks: the file has the
// same bytes, with one pass and with several, with all that a Collector can sum and with as little as it can.
func TestCollectorRanks(t *testing.T) {
	const windows, rows, width, experts, layers = 7, 5, 6, 3, 2
	window := func(i, layer, seed int) tensor.Dense {
		x := tensor.New(rows, width)
		for k := range x.Data {
			x.Data[k] = float32((k*k+7*i+3*layer+seed)%23)/7 - 1
		}
		return x
	}
	collect := func(dir string, ranks int, memory int64, all bool) []byte {
		t.Helper()
		out := filepath.Join(dir, fmt.Sprintf("%d-%d.safetensors", ranks, memory))
		if err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
			c := &Collector{Dir: dir, Out: out, Hessian: all, Pairs: all, Threads: 1, Memory: memory, Ranks: g, Replace: true}
			for layer := range layers {
				name := fmt.Sprint(layer)
				linears := []Linear{{Name: name, Width: width, Modules: []string{name}}}
				for e := range experts {
					n := fmt.Sprintf("%d.%d", layer, e)
					linears = append(linears, Linear{Name: n, Width: width, Modules: []string{n}, Kind: "up", Stream: true})
				}
				c.Layers = append(c.Layers, linears)
			}
			first, last := (ranks-1-g.Rank())*windows/ranks, (ranks-g.Rank())*windows/ranks
			for layer := range c.Layers {
				for range c.Passes(layer) {
					for i := first; i < last; i++ {
						for e := range experts {
							if i%4 == e { // the last windows of four have none of the last expert
								if err := c.Add(fmt.Sprintf("%d.%d", layer, e), window(i, layer, e+1)); err != nil {
									return err
								}
							}
						}
						if err := c.AddPair(fmt.Sprint(layer), window(i, layer, 1), window(i, layer, 0)); err != nil {
							return err
						}
					}
					if err := c.Finish(t.Context(), layer); err != nil {
						return err
					}
				}
			}
			if err := c.Join(t.Context()); err != nil {
				return err
			}
			return c.Remove()
		}); err != nil {
			t.Fatal(err)
		}
		return read(t, out)
	}
	dir := t.TempDir()
	for _, all := range []bool{false, true} {
		want := collect(dir, 1, 0, all)
		for _, ranks := range []int{1, 2, 3, 4, windows} {
			for _, memory := range []int64{0, 1, 3000} {
				if got := collect(dir, ranks, memory, all); !bytes.Equal(got, want) {
					t.Errorf("%d ranks, memory %d, all %v: other bytes", ranks, memory, all)
				}
			}
		}
	}
}
