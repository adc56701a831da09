package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/hardware"
	"github.com/microscale-go/microscale/internal/relayout"
)

const layoutLong = `Convert, check or find the layout of scales, or of codes with scales,
read from standard input. Without flags, list the layouts.

--rows and --cols are the elements of the stored matrix: for a columnwise copy,
rows are the columns of the tensor. Scales of square blocks are repeated for
each row, as hardware reads them; FP32 scales are little-endian.

--find decides by the size, the zero padding, and how much of the variance of
the scales rows and columns explain, which a wrong layout mixes. --check tests
one layout: the exit status is 1 if the buffer is not in it. --draw prints one
of the pictures of docs/layouts.md.`

const layoutExample = `  microscale layout
  microscale layout --format mxfp8 --rows 35 --cols 128 --find < scales
  microscale layout --format mxfp8 --rows 35 --cols 128 --from mlx --to te < in`

func layoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "layout [--format NAME --rows N --cols N ACTION]",
		Short:             "Convert, check or find the layout of scales and codes",
		Long:              layoutLong,
		Example:           layoutExample,
		Args:              cli.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cli.AddFormat(cmd)
	rows := cmd.Flags().Int("rows", 0, "rows `N` of the stored matrix")
	cols := cmd.Flags().Int("cols", 0, "elements `N` of a row")
	from := addLayout(cmd, "from", "`LAYOUT` of standard input")
	to := addLayout(cmd, "to", "`LAYOUT` of standard output")
	check := addLayout(cmd, "check", "check that standard input is in `LAYOUT`")
	find := cmd.Flags().Bool("find", false, "print the possible layouts of standard input")
	draw := cmd.Flags().String("draw", "", "print an SVG `PICTURE`: "+strings.Join(relayout.Pictures, ", "))
	asJSON := addJSON(cmd)
	for _, flag := range []string{"format", "rows", "cols"} {
		cli.Needs(cmd, flag, "find", "check", "from", "to")
		cli.Exclusive(cmd, "draw", flag)
	}
	for _, pair := range [][2]string{
		{"find", "check"}, {"find", "from"}, {"find", "to"}, {"check", "from"}, {"check", "to"},
		{"draw", "find"}, {"draw", "check"}, {"draw", "from"}, {"draw", "to"}, {"draw", "json"},
		{"json", "from"}, {"json", "to"}, {"json", "check"},
	} {
		cli.Exclusive(cmd, pair[0], pair[1])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		converts := from.Given || to.Given
		switch {
		case cmd.Flags().Changed("draw"):
			return drawPicture(out, *draw)
		case !converts && !check.Given && !*find:
			return hardware.PrintLayouts(out, *asJSON)
		case converts && !from.Given:
			return cli.Misuse("--from is missing: name the layout of standard input, such as --from row-major")
		case converts && !to.Given:
			return cli.Misuse("--to is missing: name the layout of standard output, such as --to swizzled")
		case !f.Given:
			return cli.Misuse("--format is missing: name a block format, such as --format mxfp8")
		case *rows < 1 || *cols < 1:
			return cli.Misuse("--rows and --cols are missing or below 1: give the shape of the stored matrix")
		}
		b := relayout.Buffer{Format: f.Value, Rows: *rows, Cols: *cols}
		src, err := hardware.ReadBuffer(cmd.InOrStdin(), b)
		switch {
		case err != nil:
			return err
		case *find:
			return hardware.PrintFound(out, b, src, *asJSON)
		case check.Given:
			if err := b.Check(src, check.Value); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%d bytes are %d×%d %s in %s\n", len(src), b.Rows, b.Cols, b.Format, check.Value)
			return err
		}
		dst, err := b.Convert(src, to.Value, from.Value)
		if err != nil {
			return err
		}
		_, err = out.Write(dst)
		return err
	}
	return cmd
}

func drawPicture(w io.Writer, name string) error {
	picture, err := relayout.Draw(name)
	if err != nil {
		return cli.Misuse("--draw: %s", err)
	}
	_, err = w.Write(picture)
	return err
}

func addLayout(cmd *cobra.Command, flag, usage string) *cli.Choice[relayout.Layout] {
	return cli.AddChoice(cmd, flag, usage, "", cli.Names(relayout.Layouts()), relayout.Lookup)
}
