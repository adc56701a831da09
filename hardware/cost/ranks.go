package cost

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// A Network connects ranks in two levels: those of a node, and nodes.
type Network struct {
	Ranks, PerNode int

	Tensor   int  // ranks of a node that share every layer; 0: 1
	Sequence bool // they divide the tokens, too

	// Of one rank and direction: bytes per second within a node and between nodes, and the seconds
	// of a message without data.
	LocalBandwidth, Bandwidth float64
	LocalLatency, Latency     float64
}

// NewNetwork returns a network of the kind of today's clusters: nodes of 8 ranks with NVLink 4 (900
// GB/s in both directions) and one port of NDR InfiniBand (50 GB/s) for each rank, both at 80 %. The
// latencies are assumptions.
func NewNetwork(ranks int) Network {
	return Network{Ranks: ranks, PerNode: min(8, ranks), LocalBandwidth: 360e9, Bandwidth: 40e9, LocalLatency: 1.5e-6,
		Latency: 4e-6}
}

// Validate returns an error unless the ranks fill whole nodes.
func (n Network) Validate() error {
	switch {
	case n.Ranks < 2 || n.Ranks > 1<<20:
		return fmt.Errorf("ranks: got %d, want 2 to %d", n.Ranks, 1<<20)
	case n.PerNode < 1 || n.Ranks%n.PerNode != 0:
		return fmt.Errorf("ranks per node: got %d, want a divisor of the %d ranks", n.PerNode, n.Ranks)
	case !(n.LocalBandwidth > 0 && n.Bandwidth > 0):
		return fmt.Errorf("bandwidth: got %g B/s within and %g B/s between nodes, want positive numbers", n.LocalBandwidth, n.Bandwidth)
	}
	return n.checkTensor()
}

// sent returns the bytes that all ranks together send in a reduce-scatter or an all-gather of the
// given bytes: each sends what the others need of its part.
func sent(bytes float64, ranks int) float64 { return float64(ranks-1) * bytes }

// Time returns the seconds of a reduce-scatter or an all-gather as rings: within the nodes, then
// between them with one part of the data for each rank of a node.
func (n Network) Time(bytes float64) float64 {
	p, nodes := float64(n.PerNode), float64(n.Ranks/n.PerNode)
	return n.Latency*(nodes-1) + n.LocalLatency*(p-1) +
		bytes*(p-1)/p/n.LocalBandwidth + bytes/p*(nodes-1)/nodes/n.Bandwidth
}

// WeightBytes returns the bytes of the copies of a rows×cols weight that travel: codes, and scales of
// blocks, rowwise and columnwise unless one is the transpose of the other. A scale of the whole tensor does not
// travel. Recipes that do not quantize weights send BF16.
func WeightBytes(r recipe.Recipe, rows, cols int) float64 {
	if !r.HoldsWeights() {
		return sourceBytes * float64(rows) * float64(cols)
	}
	n := travels(r.Weight.Rowwise.Format, rows, cols)
	if !r.Weight.Shared() {
		n += travels(r.Weight.Columnwise.Format, cols, rows)
	}
	return n
}

// An exchange is what the ranks send in a step: gradients and weights, in bytes per parameter.
type exchange struct {
	name               string
	gradients, weights float64
}

// exchanges returns the choices for a recipe, the one that sends most first.
func (c *Config) exchanges() []exchange {
	mxfp8 := quant.MXFP8.BitsPerElement() / 8
	weight := WeightBytes(c.Recipe, c.Width, c.Width) / float64(c.Width) / float64(c.Width)
	list := []exchange{{"FP32 gradients, BF16 weights", 4, sourceBytes}, {"BF16 gradients, BF16 weights", sourceBytes, sourceBytes}}
	if c.Recipe.HoldsWeights() {
		list = append(list, exchange{"BF16 gradients, quantized weights", sourceBytes, weight}, exchange{"MXFP8 gradients, quantized weights",
			mxfp8, weight})
	}
	return list
}

// communication returns the figures of a step of data parallelism with a distributed optimizer:
// gradients are reduced to parts, weights are gathered. step is the seconds of the products and
// quantizers; a third of them is the forward pass.
func (c *Config) communication(n Network, step float64) Section {
	s := Section{Title: fmt.Sprintf("Communication of %d ranks, %d to a node, with a distributed optimizer", n.Ranks, n.PerNode)}
	f := float64(n.Ranks-1) / float64(n.Ranks)
	network := fmt.Sprintf("rings: %g µs × (%d nodes − 1) + %g µs × (%d ranks − 1), %g GB/s in and %g GB/s between nodes",
		n.Latency*1e6, n.Ranks/n.PerNode, n.LocalLatency*1e6, n.PerNode, n.LocalBandwidth/1e9, n.Bandwidth/1e9)
	for _, x := range c.exchanges() {
		gradients, weights := n.Time(x.gradients*c.Params), n.Time(x.weights*c.Params)
		exposed := max(0, gradients-step*2/3) + max(0, weights-step/3) // NaN if the time of a step is unknown
		s.Figures = append(s.Figures,
			Figure{x.name, f * (x.gradients + x.weights) * c.Params, "B", fmt.Sprintf("sent per rank: %.4g × (%.5g + %.5g) B × %.4g parameters", f,
				x.gradients, x.weights, c.Params)},
			Figure{"  time", gradients + weights, "s", network},
			Figure{"  not hidden by products", exposed, "s",
				fmt.Sprintf("gradients %.3g s beyond two thirds of %.3g s, weights %.3g s beyond one third", gradients, step, weights)},
		)
	}
	return s
}

// Scaling returns the names of the choices, and for each the seconds of communication for numbers of
// ranks.
func (c *Config) Scaling(n Network, ranks []float64) (names []string, seconds [][]float64) {
	params := c.Params / float64(max(1, n.Tensor))
	for _, x := range c.exchanges() {
		var y []float64
		for _, r := range ranks {
			n.Ranks = int(r)
			n.PerNode = min(n.PerNode, n.Ranks)
			t := math.NaN()
			if n.Validate() == nil {
				n := n.data()
				t = n.Time(x.gradients*params) + n.Time(x.weights*params)
			}
			y = append(y, t)
		}
		names, seconds = append(names, x.name), append(seconds, y)
	}
	return names, seconds
}
