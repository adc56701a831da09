package catalog

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// PrintClients prints the convention and scheme of each format for each client: a table in Markdown with
// a column for each client, or text with a row for each. Another column or row has the hardware whose
// library multiplies the format.
func PrintClients(w io.Writer, markdown bool) error {
	if markdown {
		_, err := fmt.Fprintln(w, clientTable().RenderMarkdown())
		return err
	}
	t := show.NewTable(show.Left("format"), show.Left("client"), show.Left("convention and scheme"))
	for _, f := range quant.Formats() {
		name := f.Name
		for i, cell := range clientCells(f) {
			if cell != "-" {
				t.AppendRow(table.Row{name, client.All()[i].Name, cell})
				name = ""
			}
		}
		if name == "" {
			t.AppendRow(table.Row{"", "hardware", hardwareText(f)})
		}
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// clientTable returns the hardware that multiplies each format, and the convention and scheme in
// which each client reads it.
func clientTable() table.Writer {
	columns := []show.Column{show.Left("format"), show.Left("cuBLASLt, hipBLASLt on")}
	for _, c := range client.All() {
		columns = append(columns, show.Left(c.Name))
	}
	t := show.NewTable(columns...)
	for _, f := range quant.Formats() {
		if !f.Scaled() { // read as they are
			continue
		}
		row := table.Row{f.Name, hardwareText(f)}
		cells := clientCells(f)
		for _, cell := range cells {
			row = append(row, cell)
		}
		if slices.ContainsFunc(cells, func(cell string) bool { return cell != "-" }) {
			t.AppendRow(row)
		}
	}
	return t
}

// clientCells returns the convention and scheme in which each client reads f, or - if it does not.
func clientCells(f quant.Format) []string {
	var cells []string
	for _, c := range client.All() {
		cell := "-"
		if storages, err := c.Stores(f); err == nil {
			cell = storages[0].String()
		}
		cells = append(cells, cell)
	}
	return cells
}

// hardwareText names the architectures whose library multiplies activations and weights of a
// format. Activations of 128×128 blocks are in blocks of 1×128.
func hardwareText(f quant.Format) string {
	const size = 4096 // divisible by every alignment
	var names []string
	input := f
	if f.Name == quant.FP8Block.Name {
		input = quant.FP8Vec128
	}
	for _, d := range device.All() {
		a, err := device.Check(device.Request{Device: d, Input: input, Weight: f, Grad: input, M: size, N: size, K: size, Forward: true})
		if err == nil && a.OK && !slices.Contains(names, d.Arch.Name) {
			names = append(names, d.Arch.Name)
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}
