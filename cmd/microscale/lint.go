package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hf"
)

// openBroken is input.Open that accepts an index that contradicts its files, which is a finding.
func openBroken(ctx context.Context, arg string) (*hf.Checkpoint, error) {
	return lint.OpenBroken(arg, func(path string) (*hf.Checkpoint, error) { return input.Open(ctx, path) })
}

func lintCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lint SRC",
		Short: "Find what programs reject or misread in a checkpoint",
		Long: `Apply a table of rules to the headers and the configuration of a checkpoint:
global scales of fused sets that differ, wrong ignore lists, files that
contradict each other, and more (docs/lint.md lists the rules). Each finding
has its reason, a remedy and the source of the rule.

The exit status is 1 if there is a finding of severity error: a program rejects
the checkpoint, or computes with other values.

` + input.Help,
		Example: `  microscale lint sample:
  microscale lint Llama-3.2-1B-NVFP4 --for vllm
  microscale lint Llama-3.2-1B-NVFP4 --for vllm,sglang --sarif > lint.sarif`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "SRC") },
	}
	clients := flags.AddList(cmd, "for", "apply the rules of the clients `NAMES` (default all that read the checkpoint)", "",
		flags.Names(client.All()), client.Lookup)
	scales := cmd.Flags().Bool("scales", false, "read all scales: those of blocks, and of rows on a server, too "+
		"(by default those of whole tensors, and of rows on disk)")
	each := cmd.Flags().Bool("each", false, "print every finding, not the first three of a rule")
	asJSON := addJSON(cmd)
	asSARIF := cmd.Flags().Bool("sarif", false, "print SARIF 2.1.0, for continuous integration")
	flags.Exclusive(cmd, "json", "sarif")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := openBroken(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		model, err := checkpoint.ReadContext(cmd.Context(), source)
		if err != nil {
			return show.Interrupted(err, "not all rules were applied")
		}
		report, err := lint.Run(cmd.Context(), model, lint.Options{Clients: clients.Values(), Scales: *scales})
		if err != nil {
			return show.Interrupted(err, "not all rules were applied")
		}
		if *asJSON || *asSARIF {
			if err := report.MarkRepairable(cmd.Context(), model); err != nil {
				return show.Interrupted(err, "it is not known what repair mends")
			}
		}
		out := cmd.OutOrStdout()
		switch {
		case *asJSON:
			err = show.PrintJSON(out, lint.NewDocument(args[0], report))
		case *asSARIF:
			err = show.PrintJSON(out, lint.NewSARIF(args[0], report))
		default:
			err = lint.Print(out, args[0], report, *each)
		}
		if n := report.Count(lint.Error); err == nil && n > 0 {
			return fmt.Errorf("%s: %s of severity error", show.Printable(args[0]), show.Counted(n, "finding"))
		}
		return err
	}
	return cmd
}
