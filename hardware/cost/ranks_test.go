package cost

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/recipe"
)

// TestNetwork computes times of two networks by hand: rings in a node of 4, and 2 nodes of 4.
func TestNetwork(t *testing.T) {
	n := Network{Ranks: 4, PerNode: 4, LocalBandwidth: 100, Bandwidth: 10, LocalLatency: 0.5, Latency: 2}
	if got, want := n.Time(1000), 3*0.5+750./100; math.Abs(got-want) > 1e-12 {
		t.Errorf("one node: got %g s, want %g", got, want)
	}
	n.Ranks = 8
	if got, want := n.Time(1000), 3*0.5+2+750./100+1000./4/2/10; math.Abs(got-want) > 1e-12 {
		t.Errorf("two nodes: got %g s, want %g", got, want)
	}
	for _, bad := range []Network{{Ranks: 1, PerNode: 1, LocalBandwidth: 1, Bandwidth: 1}, {Ranks: 12, PerNode: 8, LocalBandwidth: 1,
		Bandwidth: 1}, {Ranks: 8, PerNode: 8, LocalBandwidth: 1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}

// TestWeightBytes checks the bytes of weights that travel, in the bytes of BF16.
func TestWeightBytes(t *testing.T) {
	for name, want := range map[string]float64{
		"bf16": 1, "delayed": 1. / 2, "tensorwise": 1. / 2, "mxfp8": 33. / 32, "nvfp4": 129. / 512, "blockwise": 1./2 + 4./(2*128*128),
		"mxfp4": 17. / 32,
	} {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := WeightBytes(r, 1024, 512) / (2 * 1024 * 512); got != want {
			t.Errorf("%s: got %g of the bytes of BF16, want %g", name, got, want)
		}
	}
}

// TestCommunication checks that the section has the bytes of the formula, and what products hide.
func TestCommunication(t *testing.T) {
	r, err := recipe.Lookup("mxfp8")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Params: 1 << 30, Recipe: r, Width: 4096}
	n := NewNetwork(64)
	s := c.communication(n, 0)
	if len(s.Figures) != 12 || s.Figures[0].Value != 63./64*6*(1<<30) || s.Figures[9].Value != 63./64*(33./32+33./16)*(1<<30) {
		t.Errorf("got %+v", s)
	}
	if all, hidden := s.Figures[2].Value, c.communication(n, 1e3).Figures[2].Value; all != s.Figures[1].Value || hidden != 0 {
		t.Errorf("not hidden: %g s without products, %g s with long ones", all, hidden)
	}
	names, seconds := c.Scaling(n, []float64{8, 16})
	if len(names) != 4 || seconds[0][0] >= seconds[0][1] || seconds[3][1] >= seconds[0][1] {
		t.Errorf("got %v, %v", names, seconds)
	}
}

// TestLayerTraffic checks what ranks that share a layer send, in bytes per token and channel: 16 of
// sums alone, or 8 of sums and 6 copies in one direction each, 8 where columnwise blocks travel.
func TestLayerTraffic(t *testing.T) {
	for name, want := range map[string]float64{
		"bf16": 12, "delayed": 6, "tensorwise": 6, "blockwise": 8 * (1 + 4./128), "mxfp8": 8 * 33. / 32, "nvfp4": 8 * 9. / 16,
		"mxfp4": 8 * 17. / 32,
	} {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Recipe: r, Tokens: 512, Width: 1024}
		each := 7 * float64(c.Tokens*c.Width) // 8 ranks
		if gathers, sums := c.LayerTraffic(8, false); gathers != 0 || sums != 16*each {
			t.Errorf("%s: got %g and %g bytes, want none and %g", name, gathers, sums, 16*each)
		}
		if gathers, sums := c.LayerTraffic(8, true); gathers != want*each || sums != 8*each {
			t.Errorf("%s: got %g and %g bytes with divided tokens, want %g and %g", name, gathers, sums, want*each, 8*each)
		}
	}
}

// TestTensorNetwork checks the sections of ranks that share layers: what the others send is of their
// part of the parameters.
func TestTensorNetwork(t *testing.T) {
	r, err := recipe.Lookup("mxfp8")
	if err != nil {
		t.Fatal(err)
	}
	n := NewNetwork(64)
	n.Tensor, n.Sequence = 8, true
	c := Config{Params: 12 * 4096 * 4096, Recipe: r, Tokens: 8192, Width: 4096, Network: &n}
	s := c.network(1)
	if len(s) != 2 || s[0].Figures[2].Value != 7./8*(8*33./32+8)*8192*4096 || s[1].Figures[0].Value != 7./8*6*c.Params/8 {
		t.Errorf("got %+v", s)
	}
	n.Ranks = 8
	if s := c.network(1); len(s) != 1 {
		t.Errorf("ranks that all share layers: got %d sections, want 1", len(s))
	}
	for _, bad := range []Network{{Tensor: 3}, {Tensor: -1}, {Sequence: true}, {Tensor: 16}} {
		bad.Ranks, bad.PerNode, bad.LocalBandwidth, bad.Bandwidth = 16, 8, 1, 1
		if bad.Validate() == nil {
			t.Errorf("%+v: got no error", bad)
		}
	}
}
