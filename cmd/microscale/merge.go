package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/summary"
)

func mergeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge DST",
		Short: "join the parts that several workers wrote",
		Long: `Joins the parts of a checkpoint that workers wrote (--shard), and gives it its
name. Nothing is computed: every part must be there, whole, and of the same
source and options. The result has the bytes that one worker would have written.`,
		Example: `  microscale quantize SRC DST --format mxfp8 --shard 0/2     on one machine
  microscale quantize SRC DST --format mxfp8 --shard 1/2     on another, with the same file system
  microscale merge DST`,
		Args: func(_ *cobra.Command, args []string) error { return cli.Named(args, "DST") },
	}
	force := cmd.Flags().Bool("force", false, forceUsage)
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = cli.Remedied(func(cmd *cobra.Command, args []string) error {
		m := cli.NewMeter(cmd.ErrOrStderr(), "merging", 0)
		result, err := convert.Merge(cmd.Context(), args[0], convert.RunOptions{Force: *force, Progress: m.Report})
		m.Close()
		if err != nil {
			return err
		}
		for _, w := range result.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: warning: %s\n", cli.Escaped(w))
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			return cli.PrintJSON(out, mergeDocument{args[0], result.Finished, summary.TensorDocuments(result.Tensors)})
		}
		if result.Finished {
			_, err := fmt.Fprintf(out, "%s is whole already: there was nothing to join\n", cli.Printable(args[0]))
			return err
		}
		if err := summary.PrintErrors(out, result.Tensors, *each); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "\n%s is whole: %s\n", cli.Printable(args[0]), cli.Counted(len(result.Tensors), "weight"))
		return err
	})
	return cmd
}

// mergeDocument is what merge did, as JSON.
type mergeDocument struct {
	Destination string                   `json:"destination"`
	Finished    bool                     `json:"finished,omitempty"` // an earlier merge had done it: the errors are not known
	Tensors     []summary.TensorDocument `json:"tensors"`
}
