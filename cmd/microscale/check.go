package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/planning"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/device"
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
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	on := addDevice(cmd)
	l := addLayer(cmd)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case !l.input.Given && *asJSON:
			return show.PrintJSON(out, planning.DevicesDocument(on.Value))
		case !l.input.Given && on.Given:
			return planning.PrintModes(out, on.Value)
		case !l.input.Given:
			return planning.PrintDevices(out)
		case !on.Given:
			return show.Misuse("--device is missing: name one that microscale check lists, such as --device h100")
		}
		r, err := l.request(on.Value)
		if err != nil {
			return err
		}
		a, err := device.Check(r)
		if err != nil {
			return show.Misuse("%s", err)
		}
		if *asJSON {
			err = show.PrintJSON(out, planning.AnswerDocument(a))
		} else {
			err = planning.PrintAnswer(out, a)
		}
		if err == nil && !a.OK {
			err = firstProblem(a)
		}
		return err
	}
	return cmd
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
