package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// layerFlags describe a linear layer.
type layerFlags struct {
	cmd                 *cobra.Command
	input, weight, grad *flags.Choice[quant.Format]
	m, n, k             *int
	forward             *bool
}

func addLayer(cmd *cobra.Command) *layerFlags {
	l := &layerFlags{cmd: cmd, input: flags.AddFormat(cmd)}
	l.weight = addBlockFormat(cmd, "weight-format", "block format `NAME` of the weight (default that of --format)")
	l.grad = addBlockFormat(cmd, "gradient-format", "block format `NAME` of the output gradient (default that of --format)")
	l.m = cmd.Flags().Int("m", 0, "rows `N` of the input: tokens")
	l.n = cmd.Flags().Int("n", 0, "rows `N` of the weight: outputs")
	l.k = cmd.Flags().Int("k", 0, "columns `N` of input and weight: inputs")
	l.forward = cmd.Flags().Bool("forward", false, "check the forward product alone, for inference")
	for _, flag := range []string{"weight-format", "gradient-format", "m", "n", "k", "forward"} {
		flags.Needs(cmd, flag, "format")
	}
	flags.Exclusive(cmd, "forward", "gradient-format")
	return l
}

// request returns the layer on a device. It returns an error if a size is missing.
func (l *layerFlags) request(on *device.Device) (device.Request, error) {
	r := device.Request{Device: on, Input: l.input.Value, Weight: l.input.Value, Grad: l.input.Value, M: *l.m, N: *l.n, K: *l.k,
		Forward: *l.forward}
	for _, size := range []string{"m", "n", "k"} {
		if !l.cmd.Flags().Changed(size) {
			return r, show.Misuse("--%s is missing: give the sizes of the layer, such as --m 4096 --n 4096 --k 4096", size)
		}
	}
	if l.weight.Given {
		r.Weight = l.weight.Value
	}
	if l.grad.Given {
		r.Grad = l.grad.Value
	}
	return r, nil
}

func addDevice(cmd *cobra.Command) *flags.Choice[*device.Device] {
	return flags.AddChoice(cmd, "device", "device `NAME` (microscale check lists them)", "", flags.Names(device.All()), device.Lookup)
}

// addBlockFormat gives cmd a flag that takes a block format.
func addBlockFormat(cmd *cobra.Command, flag, usage string) *flags.Choice[quant.Format] {
	return flags.AddChoice(cmd, flag, usage, "", flags.Names(quant.Formats()), quant.Lookup)
}
