package catalog

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/clients"
	"github.com/microscale-go/microscale/quant"
)

// PrintClients prints the convention and scheme of each format for each client.
func PrintClients(w io.Writer, markdown bool) error {
	t := clientTable()
	text := t.Render()
	if markdown {
		text = t.RenderMarkdown()
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func clientTable() table.Writer {
	columns := []cli.Column{cli.Left("format")}
	for _, c := range clients.All() {
		columns = append(columns, cli.Left(c.Name))
	}
	t := cli.NewTable(columns...)
	for _, f := range quant.Formats() {
		row, stored := table.Row{f.Name}, false
		for _, c := range clients.All() {
			cell := "-"
			if convention, scheme, err := c.Stores(f); err == nil {
				cell, stored = strings.TrimSpace(convention.Name+" "+scheme), true
			}
			row = append(row, cell)
		}
		if stored {
			t.AppendRow(row)
		}
	}
	return t
}
