package cost

import (
	"fmt"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// travels returns the bytes of a rows×cols tensor between ranks that have parts of it: codes, and
// scales of blocks. A scale of the whole tensor does not travel.
func travels(f quant.Format, rows, cols int) float64 {
	codes, scales := device.Storage(f, rows, cols)
	switch {
	case f.PerTensor():
		scales = 0
	case f.Global:
		scales -= 4
	}
	return float64(codes + scales)
}

// LayerTraffic returns the bytes that all ranks that share a layer send for its tokens in a forward and
// a backward pass: quantized operands that are gathered, if the ranks divide the tokens, and sums in
// the recipe's Activations. A layer has two pairs of linear layers, of which the ranks divide the
// outputs of the first and the inputs of the second: attention and the feed-forward layers.
func (c *Config) LayerTraffic(ranks int, sequence bool) (gathers, sums float64) {
	const pairs = 2
	list := c.operands()
	x, dy := list[0], list[2]
	one := sent(travels(c.Recipe.Activations, x.rows, x.cols), ranks) // a reduce-scatter of activations
	if !sequence {
		return 0, pairs * 2 * 2 * one // of Y and of dX; the sums are sent to all
	}
	column := func(o operand) float64 {
		if o.shared { // the transpose of the rowwise copy
			return travels(o.formats[rowwise], o.rows, o.cols)
		}
		return travels(o.formats[columnwise], o.cols, o.rows)
	}
	n := travels(x.formats[rowwise], x.rows, x.cols) + column(x) + travels(dy.formats[rowwise], dy.rows, dy.cols)
	if !dy.shared {
		n += column(dy)
	}
	return pairs * sent(n, ranks), pairs * 2 * one
}

// layerParams is the number of parameters of a layer of width 1: 4 of attention, 8 of the feed-forward
// layers.
const layerParams = 12

// tensor returns the figures of a step of ranks of a node that share every layer.
func (c *Config) tensor(n Network) Section {
	t := float64(n.Tensor)
	gathers, sums := c.LayerTraffic(n.Tensor, n.Sequence)
	layers := c.Params / layerParams / float64(c.Width) / float64(c.Width)
	collectives := 8.0
	what := "tokens are not divided: sums are sent to all"
	if n.Sequence {
		collectives, what = 10, "X, dX, Y and dY of two pairs of linear layers, tokens divided"
		if x := c.operands()[2]; !x.shared {
			collectives = 12
		}
	}
	sent := layers * (gathers + sums) / t
	return Section{Title: fmt.Sprintf("Communication of %d ranks of a node that share every layer", n.Tensor), Figures: []Figure{
		{"quantized activations of a layer", gathers / t, "B", fmt.Sprintf("sent per rank, %d tokens of width %d: %s", c.Tokens, c.Width, what)},
		{"sums of a layer", sums / t, "B", "sent per rank, in the recipe's activations"},
		{"all layers", sent, "B", fmt.Sprintf("%.4g layers of %d·%d² parameters", layers, layerParams, c.Width)},
		{"  time", layers*collectives*n.LocalLatency*(t-1) + sent/n.LocalBandwidth, "s",
			fmt.Sprintf("rings: %g collectives of %g µs × (%d ranks − 1) per layer, %g GB/s", collectives, n.LocalLatency*1e6, n.Tensor,
				n.LocalBandwidth/1e9)},
	}}
}

// network returns the sections of the ranks that share layers and of those that share microbatches.
// step is the seconds of a step without communication on one rank.
func (c *Config) network(step float64) (list []Section) {
	n, part := *c.Network, *c
	if n.Tensor > 1 {
		list = append(list, c.tensor(n))
		part.Params /= float64(n.Tensor)
		step /= float64(n.Tensor)
	}
	if d := n.data(); d.Ranks > 1 {
		list = append(list, part.communication(d, step))
	}
	return list
}

// data returns the network of the ranks that have the same part of every layer.
func (n Network) data() Network {
	t := max(1, n.Tensor)
	n.Ranks, n.PerNode = n.Ranks/t, max(1, n.PerNode/t)
	return n
}

// checkTensor returns an error unless the ranks that share a layer are in one node.
func (n Network) checkTensor() error {
	switch {
	case n.Tensor < 0 || n.Tensor > 1 && n.PerNode%n.Tensor != 0:
		return fmt.Errorf("ranks that share a layer: got %d, want a divisor of the %d ranks of a node", n.Tensor, n.PerNode)
	case n.Sequence && n.Tensor < 2:
		return fmt.Errorf("ranks divide tokens only if they share a layer: got %d", n.Tensor)
	}
	return nil
}
