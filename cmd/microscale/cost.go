package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/planning"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/recipe"
)

const costLong = `Compute the cost of a recipe on a device: bytes of weights, of their rowwise and
columnwise copies, scales and padding, and of activations; operations, traffic
and time of a training step; the share of quantization, and the sizes from which
it pays.

The model is square weights of --width with --params parameters in all. Times
are those of a roofline: operations at the peak rate or bytes at the memory
bandwidth, whichever takes longer. With --explain, print the formula of each
figure with its inputs. With --tables, recompute the tables that docs/errata.md
corrects.

With --ranks, add the communication of data parallelism with a distributed
optimizer: bytes sent per rank and the time on a network of two levels, with
--svg as a chart from 8 to 4096 ranks. With --tp, N of these ranks share every
layer and exchange activations.`

const costExample = `  microscale cost --params 8e9 --recipe mxfp8 --device b200
  microscale cost --params 8e9 --recipe nvfp4 --device gb300 --explain
  microscale cost --params 8e9 --device b200 --ranks 1024 --svg scaling.svg
  microscale cost --params 8e9 --device b200 --ranks 64 --tp 8
  microscale cost --tables`

func costCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "cost --params N --recipe NAME --device NAME",
		Short:             "Compute memory, traffic, time and the sizes that pay",
		Long:              costLong,
		Example:           costExample,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	params := cmd.Flags().Float64("params", 0, "parameters `N` of the linear layers, such as 8e9")
	r := flags.AddChoice(cmd, "recipe", "recipe `NAME`: "+strings.Join(flags.RecipeNames(), ", "), "mxfp8", flags.RecipeNames(), recipe.Find)
	on := addDevice(cmd)
	tokens := cmd.Flags().Int("tokens", 8192, "tokens `N` per step")
	width := cmd.Flags().Int("width", 4096, "rows and columns `N` of the weights")
	explain := cmd.Flags().Bool("explain", false, "print the formula of each figure")
	tables := cmd.Flags().Bool("tables", false, "print the tables that docs/errata.md corrects")
	svg := addSVG(cmd, "draw the speedup of square products over BF16 by size to `FILE`; with --ranks, the communication by ranks")
	network := addNetwork(cmd)
	asJSON := addJSON(cmd)
	flags.Essential(cmd, "params", "recipe", "device", "tokens", "width", "explain", "tables", "svg", "ranks", "json")
	for _, flag := range []string{"params", "recipe", "device", "tokens", "width", "explain", "svg", "ranks"} {
		flags.Exclusive(cmd, "tables", flag)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case *tables:
			return planning.PrintTables(out, cost.Tables(), *asJSON)
		case !cmd.Flags().Changed("params"):
			return show.Misuse("--params is missing: give the number of parameters, such as --params 8e9")
		case !on.Given:
			return show.Misuse("--device is missing: name one that microscale check lists, such as --device b200")
		}
		c := cost.Config{Params: *params, Recipe: r.Value, Device: on.Value, Tokens: *tokens, Width: *width, Network: network()}
		e, err := cost.New(c)
		if err != nil {
			return show.Misuse("%s", err)
		}
		if err := svg.write(func() ([]byte, error) { return planning.EstimateChart(e) }); err != nil {
			return err
		}
		return planning.PrintEstimate(out, e, *explain, *asJSON)
	}
	return cmd
}

// addNetwork gives cmd the flags of a network. The function that it returns returns the network, or
// nil without --ranks.
func addNetwork(cmd *cobra.Command) func() *cost.Network {
	usual := cost.NewNetwork(1 << 20)
	ranks := cmd.Flags().Int("ranks", 0, "divide the run among `N` ranks, each with --tokens tokens")
	node := cmd.Flags().Int("ranks-per-node", usual.PerNode, "ranks `N` of a node")
	bandwidth := cmd.Flags().Float64("node-bandwidth", usual.Bandwidth/1e9, "`GB/s` of one rank to other nodes, in one direction")
	tensor := cmd.Flags().Int("tp", 1, "`N` of the ranks, of one node, share every layer (tensor parallelism)")
	sequence := cmd.Flags().Bool("sequence-parallel", false, "with --tp: these ranks divide the tokens, too")
	for _, flag := range []string{"ranks-per-node", "node-bandwidth", "tp"} {
		flags.Needs(cmd, flag, "ranks")
	}
	flags.Needs(cmd, "sequence-parallel", "tp")
	return func() *cost.Network {
		if !cmd.Flags().Changed("ranks") {
			return nil
		}
		n := cost.NewNetwork(*ranks)
		if cmd.Flags().Changed("ranks-per-node") {
			n.PerNode = *node
		}
		n.Bandwidth, n.Tensor, n.Sequence = *bandwidth*1e9, *tensor, *sequence
		return &n
	}
}
