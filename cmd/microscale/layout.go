package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/layout"
)

const layoutLong = `Convert, check or find the layout of scales, or of codes with scales,
read from standard input. Without flags, list the layouts.

--rows and --cols are the elements of the stored matrix: for a columnwise copy,
rows are the columns of the tensor. Scales of square blocks are repeated for
each row, as hardware reads them; FP32 scales are little-endian.

--find decides by the size, the zero padding, and how much of the variance of
the scales rows and columns explain, which a wrong layout mixes. --check tests
one layout: the exit status is 1 if the buffer is not in it.`

const layoutExample = `  microscale layout
  microscale layout --format mxfp8 --rows 35 --cols 128 --find < scales
  microscale layout --format mxfp8 --rows 35 --cols 128 --from mlx --to te < in`

func layoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "layout [--format NAME --rows N --cols N ACTION]",
		Short:             "Convert, check or find the layout of scales and codes",
		Long:              layoutLong,
		Example:           layoutExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := addFormat(cmd)
	rows := cmd.Flags().Int("rows", 0, "rows `N` of the stored matrix")
	cols := cmd.Flags().Int("cols", 0, "elements `N` of a row")
	from := addLayout(cmd, "from", "`LAYOUT` of standard input")
	to := addLayout(cmd, "to", "`LAYOUT` of standard output")
	check := addLayout(cmd, "check", "check that standard input is in `LAYOUT`")
	find := cmd.Flags().Bool("find", false, "print which layouts standard input may be in")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	exclusive(cmd, "find", "check")
	exclusive(cmd, "find", "from")
	exclusive(cmd, "check", "from")
	exclusive(cmd, "json", "from")
	exclusive(cmd, "json", "check")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		converts := from.given || to.given
		switch {
		case !converts && !check.given && !*find:
			return printLayouts(out, *asJSON)
		case converts && !from.given:
			return misuse("--from is missing: name the layout of standard input, such as --from row-major")
		case converts && !to.given:
			return misuse("--to is missing: name the layout of standard output, such as --to swizzled")
		case !f.given:
			return misuse("--format is missing: name a block format, such as --format mxfp8")
		case *rows < 1 || *cols < 1:
			return misuse("--rows and --cols are missing or below 1: give the shape of the stored matrix")
		}
		b := layout.Buffer{Format: f.value, Rows: *rows, Cols: *cols}
		src, err := readBuffer(cmd.InOrStdin(), b)
		switch {
		case err != nil:
			return err
		case *find:
			return printFound(out, b, src, *asJSON)
		case check.given:
			if err := b.Check(src, check.value); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%d bytes are %d×%d %s in %s\n", len(src), b.Rows, b.Cols, b.Format, check.value)
			return err
		}
		dst, err := b.Convert(src, to.value, from.value)
		if err != nil {
			return err
		}
		_, err = out.Write(dst)
		return err
	}
	return cmd
}

// readBuffer reads all of r. It returns an error for more bytes than any layout of b has.
func readBuffer(r io.Reader, b layout.Buffer) ([]byte, error) {
	limit := 0
	for _, l := range layout.Layouts() {
		if n, err := b.Size(l); err == nil {
			limit = max(limit, n)
		}
	}
	src, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && limit > 0 && len(src) > limit {
		err = fmt.Errorf("standard input: got more than %d bytes, the largest layout of %d×%d %s: check --rows and --cols", limit, b.Rows, b.Cols, b.Format)
	}
	return src, err
}

func addLayout(cmd *cobra.Command, flag, usage string) *choice[layout.Layout] {
	return addChoice(cmd, flag, usage, "", stringers(layout.Layouts()), layout.LookupLayout)
}

func printFound(w io.Writer, b layout.Buffer, src []byte, asJSON bool) error {
	candidates, certain := b.Find(src)
	if asJSON {
		return printJSON(w, foundDocument(candidates, certain))
	}
	verdict := "uncertain: several layouts are possible"
	switch {
	case candidates[0].Err != nil:
		return fmt.Errorf("standard input: %d bytes are in no layout of %d×%d %s: check --rows, --cols and --format", len(src), b.Rows, b.Cols, b.Format)
	case certain:
		verdict = "found: " + candidates[0].Layout.Name
	}
	t := newTable(column{"layout", false}, column{"explained", true})
	for _, c := range candidates {
		if c.Err == nil {
			t.AppendRow(table.Row{c.Layout.Name, percent(c.Structure)})
		}
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", verdict, t.Render())
	return err
}
