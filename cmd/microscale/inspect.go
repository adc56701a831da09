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
		Short: "Print the weights, formats and problems of a checkpoint",
		Long: `Read the headers of a checkpoint, and print its weights with their formats and
sizes, its quantization, and its problems. With --client, what those programs
reject is a problem too. A damaged safetensors file is an error.

` + input.Help,
		Example: `  microscale inspect sample:
  microscale inspect model.safetensors --each`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "SRC") },
	}
	each := cmd.Flags().Bool("each", false, eachUsage)
	clients := cli.AddClients(cmd)
	asJSON := addJSON(cmd)
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
		return summary.PrintInspection(cmd.OutOrStdout(), args[0], model, *each, *asJSON)
	}
	return cmd
}
