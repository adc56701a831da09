package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/layouts"
	"github.com/microscale-go/microscale/cmd/microscale/internal/planning"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

// bufferFlags describe a buffer, and what to do with it.
type bufferFlags struct {
	format          *flags.Choice[quant.Format]
	rows, cols      *int
	from, to, check *flags.Choice[layouts.Layout]
	find, asJSON    *bool
	draw            *string
}

func addBuffer(cmd *cobra.Command) *bufferFlags {
	f := &bufferFlags{format: flags.AddFormat(cmd)}
	f.rows = cmd.Flags().Int("rows", 0, "rows `N` of the stored matrix")
	f.cols = cmd.Flags().Int("cols", 0, "elements `N` of a row")
	f.from = addLayout(cmd, "from", "`LAYOUT` of standard input")
	f.to = addLayout(cmd, "to", "`LAYOUT` of standard output")
	f.check = addLayout(cmd, "check", "check that standard input is in `LAYOUT`")
	f.find = cmd.Flags().Bool("find", false, "print the possible layouts of standard input")
	f.draw = cmd.Flags().String("draw", "", "print an SVG `PICTURE`: "+strings.Join(layouts.Pictures, ", "))
	f.asJSON = addJSON(cmd)
	for _, flag := range []string{"format", "rows", "cols"} {
		flags.Needs(cmd, flag, "find", "check", "from", "to")
		flags.Exclusive(cmd, "draw", flag)
	}
	for _, pair := range [][2]string{
		{"find", "check"}, {"find", "from"}, {"find", "to"}, {"check", "from"}, {"check", "to"},
		{"draw", "find"}, {"draw", "check"}, {"draw", "from"}, {"draw", "to"}, {"draw", "json"},
		{"json", "from"}, {"json", "to"}, {"json", "check"},
	} {
		flags.Exclusive(cmd, pair[0], pair[1])
	}
	return f
}

// buffer returns the buffer. It returns an error if a flag is missing.
func (f *bufferFlags) buffer() (b layouts.Buffer, err error) {
	switch {
	case f.to.Given && !f.from.Given:
		return b, show.Misuse("--from is missing: name the layout of standard input, such as --from row-major")
	case f.from.Given && !f.to.Given:
		return b, show.Misuse("--to is missing: name the layout of standard output, such as --to swizzled")
	case !f.format.Given:
		return b, show.Misuse("--format is missing: name a block format, such as --format mxfp8")
	case *f.rows < 1 || *f.cols < 1:
		return b, show.Misuse("--rows and --cols are missing or below 1: give the shape of the stored matrix")
	}
	return layouts.Buffer{Format: f.format.Value, Rows: *f.rows, Cols: *f.cols}, nil
}

// run finds, checks or converts src.
func (f *bufferFlags) run(out io.Writer, b layouts.Buffer, src []byte) error {
	switch {
	case *f.find:
		return planning.PrintFound(out, b, src, *f.asJSON)
	case f.check.Given:
		if err := b.Check(src, f.check.Value); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%d bytes are %d×%d %s in %s\n", len(src), b.Rows, b.Cols, b.Format, f.check.Value)
		return err
	}
	dst, err := b.Convert(src, f.to.Value, f.from.Value)
	if err != nil {
		return err
	}
	_, err = out.Write(dst)
	return err
}

func addLayout(cmd *cobra.Command, flag, usage string) *flags.Choice[layouts.Layout] {
	return flags.AddChoice(cmd, flag, usage, "", flags.Names(layouts.Layouts()), layouts.Lookup)
}
