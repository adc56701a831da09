package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
	"github.com/microscale-go/microscale/convert"
)

func mergeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge DST",
		Short: "Join the parts that several workers wrote",
		Long: `Join the parts of a checkpoint that workers wrote with --shard, and rename the
result to DST. Nothing is computed: every part must be complete and undamaged,
and have the same source and options. The result has the same bytes as that of
one worker.

DST may be s3://BUCKET/FOLDER or gs://BUCKET/FOLDER, where workers upload their
files. There, their sizes and checksums are compared, config.json and index are
written, index last, and no shared disk is needed.`,
		Example: `  microscale quantize SRC DST --format mxfp8 --shard 0/2   # on one machine
  microscale quantize SRC DST --format mxfp8 --shard 1/2   # on another
  microscale merge DST
  microscale merge s3://BUCKET/FOLDER`,
		Args: func(_ *cobra.Command, args []string) error { return flags.Named(args, "DST") },
	}
	force := cmd.Flags().Bool("force", false, forceUsage)
	each := cmd.Flags().Bool("each", false, eachUsage)
	asJSON := addJSON(cmd)
	cmd.RunE = flags.Remedied(func(cmd *cobra.Command, args []string) error {
		m := show.NewMeter(cmd.ErrOrStderr(), "merging", 0)
		o := convert.RunOptions{Force: *force, Progress: reportTo(m)}
		merge := convert.Merge
		if store.Named(args[0]) {
			merge = store.Merge
		}
		result, err := merge(cmd.Context(), args[0], o)
		m.Close()
		if err != nil {
			return show.Interrupted(err, "repeat the command")
		}
		show.PrintWarnings(cmd.ErrOrStderr(), result.Warnings)
		return conversion.PrintMerge(cmd.OutOrStdout(), args[0], result, *each, *asJSON)
	})
	return cmd
}
