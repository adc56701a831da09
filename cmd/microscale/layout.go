package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/layouts"
	"github.com/microscale-go/microscale/cmd/microscale/internal/planning"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const layoutLong = `Convert, check or find the layout of scales, or of codes with scales,
read from standard input. Without flags, list the layouts.

--rows and --cols are the elements of the stored matrix: for a columnwise copy,
rows are the columns of the tensor. Scales of square blocks are repeated for
each row, as hardware reads them; FP32 scales are little-endian.

--find decides by the size, the zero padding, and how much of the variance of
the scales rows and columns explain, which a wrong layout mixes. --check tests
one layout: the exit status is 1 if the buffer is not in it. A NaN scale is an
error. --draw prints one of the pictures of docs/layouts.md.`

const layoutExample = `  microscale layout
  microscale layout --format mxfp8 --rows 35 --cols 128 --find < scales
  microscale layout --format mxfp8 --rows 35 --cols 128 --from mlx --to te < in`

func layoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "layout [--format NAME --rows N --cols N ACTION]",
		Short:             "Convert, check or find the layout of scales and codes",
		Long:              layoutLong,
		Example:           layoutExample,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := addBuffer(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case cmd.Flags().Changed("draw"):
			return drawPicture(out, *f.draw)
		case !f.from.Given && !f.to.Given && !f.check.Given && !*f.find:
			return planning.PrintLayouts(out, *f.asJSON)
		}
		b, err := f.buffer()
		if err != nil {
			return err
		}
		src, err := planning.ReadBuffer(cmd.InOrStdin(), b)
		if err != nil {
			return err
		}
		return f.run(out, b, src)
	}
	return cmd
}

func drawPicture(w io.Writer, name string) error {
	picture, err := layouts.Draw(name)
	if err != nil {
		return show.Misuse("--draw: %s", err)
	}
	_, err = w.Write(picture)
	return err
}
