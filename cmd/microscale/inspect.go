package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect SRC",
		Short: "Print the weights, formats and problems of a checkpoint",
		Long: `Read the headers of a checkpoint, and print its weights with their formats and
sizes, its quantization, and its problems. With --client, what those programs
reject is a problem too, which microscale lint explains. A damaged safetensors
file is an error. Problems are not: microscale lint has an exit status for them.

With --plan, print instead what each layer of a language model computes.

` + input.Help,
		Example: `  microscale inspect sample:
  microscale inspect model.safetensors --each`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "SRC") },
	}
	each := cmd.Flags().Bool("each", false, eachUsage)
	plan := cmd.Flags().Bool("plan", false, "print what each layer of a language model computes")
	clients := flags.AddClients(cmd)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := input.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		if *plan {
			return printPlan(cmd.OutOrStdout(), source, *asJSON)
		}
		model := checkpoint.Read(source)
		problems, err := lint.Problems(cmd.Context(), model, *clients)
		if err != nil {
			return show.Interrupted(err, "not all rules of clients were applied")
		}
		model.Problems = append(model.Problems, problems...)
		return conversion.PrintInspection(cmd.OutOrStdout(), args[0], model, *each, *asJSON)
	}
	return cmd
}

// printPlan prints the plan of a language model.
func printPlan(w io.Writer, source *hf.Checkpoint, asJSON bool) error {
	plan, err := decoder.ReadPlan(source)
	if err != nil {
		return err
	}
	if asJSON {
		return show.PrintJSON(w, plan)
	}
	_, err = io.WriteString(w, plan.String())
	return err
}
