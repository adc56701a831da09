package show

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// WriteSteps writes steps in two columns, and wraps long ones.
func WriteSteps(b *strings.Builder, width int, steps []Step) {
	for _, s := range steps {
		_ = PrintWrapped(b, s[0], 9, width, s[1]) // a Builder does not fail
	}
}

// Left returns a column of text.
func Left(title string) Column { return Column{title, false} }

// Right returns a column of numbers, aligned to the right.
func Right(title string) Column { return Column{title, true} }

// A Column is a column of a table. Numbers are aligned to the right.
type Column struct {
	Title   string
	Numeric bool
}

// NewTable returns a table in the style of all commands: no boxes, one rule below the
// titles.
func NewTable(columns ...Column) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateHeader: true, SeparateFooter: true, SeparateColumns: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical = "  "
	rule := strings.Repeat(style.Box.MiddleHorizontal, len(style.Box.MiddleVertical))
	style.Box.MiddleSeparator, style.Box.BottomSeparator = rule, rule
	style.Format.Header = text.FormatDefault
	style.Format.Footer = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	titles := make(table.Row, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	t.AppendHeader(titles)
	t.SetColumnConfigs(NumericColumns(columns))
	return t
}

// NumericColumns aligns the columns of numbers to the right.
func NumericColumns(columns []Column) []table.ColumnConfig {
	var configs []table.ColumnConfig
	for i, c := range columns {
		if c.Numeric {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight,
				AlignFooter: text.AlignRight})
		}
	}
	return configs
}

// A Step is a name and a text.
type Step [2]string
