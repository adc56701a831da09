package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/summary"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "what is in a checkpoint",
		Long: `Reads the headers of a checkpoint and prints its weights, their formats and
sizes, how it is quantized, and what is wrong with it. A file that is not a sound
safetensors file is an error; what one of the --client programs would refuse is
listed with the problems.

` + input.Help,
		Example: `  microscale inspect sample:
  microscale inspect model.safetensors --each`,
		Args: func(_ *cobra.Command, args []string) error {
			return cli.Named(args, "SRC")
		},
	}
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	clients := cli.AddClients(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := input.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		model := checkpoint.Read(source)
		for _, c := range *clients {
			model.Problems = append(model.Problems, c.Rejects(model)...)
		}
		doc := summary.Inspection(args[0], model)
		if *asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), doc)
		}
		return summary.PrintInspection(cmd.OutOrStdout(), model, doc, *each)
	}
	return cmd
}
