package report

import (
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// Terminal returns the columns of a table that have a short title. text returns a cell as the
// terminal shows it.
func Terminal(data Table, text func(cell string) string) table.Writer {
	var columns []show.Column
	for _, c := range data.Columns {
		if c.Short != "" {
			columns = append(columns, show.Column{Title: c.Short, Numeric: c.Numeric})
		}
	}
	t := show.NewTable(columns...)
	for _, row := range data.Rows {
		var cells table.Row
		for i, cell := range row {
			if data.Columns[i].Short != "" {
				cells = append(cells, text(cell))
			}
		}
		t.AppendRow(cells)
	}
	return t
}
