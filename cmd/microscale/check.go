package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/device"
	"github.com/microscale-go/microscale/internal/hardware"
	"github.com/microscale-go/microscale/quant"
)

const checkLong = `Check whether a device multiplies the operands of a linear layer, and print why
not: formats, scale modes, alignment. Print which operands need a transposed
copy, what the ways to make it cost, and what training libraries report.

The layer has m tokens, k inputs and n outputs:

  fprop  Y  = X·Wᵀ    dgrad  dX = dY·W    wgrad  dW = dYᵀ·X

Layouts are cuBLAS's: TN reads both operands along the summed dimension. Without
--format, list the devices; with --device alone, its modes. The exit status is 1
if a product does not run.`

const checkExample = `  microscale check
  microscale check --device h100
  microscale check --device h100 --format fp8-tensor --m 4096 --n 4096 --k 4096
  microscale check --device b200 --format mxfp8 --m 8192 --n 4096 --k 14336
  microscale check --device b200 --format nvfp4 --m 16 --n 64 --k 64 --forward`

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "check [--device NAME] [--format NAME --m N --n N --k N]",
		Short:             "Check which products a device runs, and what they need",
		Long:              checkLong,
		Example:           checkExample,
		Args:              cli.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	on := addDevice(cmd)
	l := addLayer(cmd)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case !l.input.Given && *asJSON:
			return cli.PrintJSON(out, hardware.DevicesDocument(on.Value))
		case !l.input.Given && on.Given:
			return hardware.PrintModes(out, on.Value)
		case !l.input.Given:
			return hardware.PrintDevices(out)
		case !on.Given:
			return cli.Misuse("--device is missing: name one that microscale check lists, such as --device h100")
		}
		r, err := l.request(on.Value)
		if err != nil {
			return err
		}
		a, err := device.Check(r)
		if err != nil {
			return cli.Misuse("%s", err)
		}
		if *asJSON {
			err = cli.PrintJSON(out, hardware.AnswerDocument(a))
		} else {
			err = hardware.PrintAnswer(out, a)
		}
		if err == nil && !a.OK {
			err = firstProblem(a)
		}
		return err
	}
	return cmd
}

// layerFlags describe a linear layer.
type layerFlags struct {
	cmd                 *cobra.Command
	input, weight, grad *cli.Choice[quant.Format]
	m, n, k             *int
	forward             *bool
}

func addLayer(cmd *cobra.Command) *layerFlags {
	l := &layerFlags{cmd: cmd, input: cli.AddFormat(cmd)}
	l.weight = addBlockFormat(cmd, "weight-format", "block format `NAME` of the weight (default that of --format)")
	l.grad = addBlockFormat(cmd, "gradient-format", "block format `NAME` of the output gradient (default that of --format)")
	l.m = cmd.Flags().Int("m", 0, "rows `N` of the input: tokens")
	l.n = cmd.Flags().Int("n", 0, "rows `N` of the weight: outputs")
	l.k = cmd.Flags().Int("k", 0, "columns `N` of input and weight: inputs")
	l.forward = cmd.Flags().Bool("forward", false, "check the forward product alone, for inference")
	for _, flag := range []string{"weight-format", "gradient-format", "m", "n", "k", "forward"} {
		cli.Needs(cmd, flag, "format")
	}
	cli.Exclusive(cmd, "forward", "gradient-format")
	return l
}

// request returns the layer on a device. It returns an error if a size is missing.
func (l *layerFlags) request(on *device.Device) (device.Request, error) {
	r := device.Request{Device: on, Input: l.input.Value, Weight: l.input.Value, Grad: l.input.Value, M: *l.m, N: *l.n, K: *l.k, Forward: *l.forward}
	for _, size := range []string{"m", "n", "k"} {
		if !l.cmd.Flags().Changed(size) {
			return r, cli.Misuse("--%s is missing: give the sizes of the layer, such as --m 4096 --n 4096 --k 4096", size)
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

// firstProblem returns the first problem of a as an error.
func firstProblem(a device.Answer) error {
	for _, p := range a.Products {
		if len(p.Problems) > 0 {
			return fmt.Errorf("%s does not run %s: %s", a.Device.Product, p.Name, p.Problems[0])
		}
	}
	return nil
}

func addDevice(cmd *cobra.Command) *cli.Choice[*device.Device] {
	return cli.AddChoice(cmd, "device", "device `NAME` (microscale check lists them)", "", cli.Names(device.All()), device.Lookup)
}

// addBlockFormat gives cmd a flag that takes a block format.
func addBlockFormat(cmd *cobra.Command, flag, usage string) *cli.Choice[quant.Format] {
	return cli.AddChoice(cmd, flag, usage, "", cli.Names(quant.Formats()), quant.Lookup)
}
