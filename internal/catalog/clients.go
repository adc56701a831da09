package catalog

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/device"
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

// clientTable returns the hardware that multiplies each format, and the convention and scheme in
// which each client reads it.
func clientTable() table.Writer {
	columns := []cli.Column{cli.Left("format"), cli.Left("cuBLASLt, hipBLASLt on")}
	for _, c := range clients.All() {
		columns = append(columns, cli.Left(c.Name))
	}
	t := cli.NewTable(columns...)
	for _, f := range quant.Formats() {
		row, stored := table.Row{f.Name, hardwareText(f)}, false
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
