package catalog

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/mma"
)

// typeNames joins the names of operand types with commas.
func typeNames(types []*mma.Type) string { return strings.Join(cli.Names(types), ", ") }

// usual returns the unit of a mode's first types.
func usual(m *mma.Model, d mma.Mode) *mma.Unit {
	u, err := m.Unit(mma.Options{A: d.Types[len(d.Types)-1]}) // the last type: earlier modes may have the first ones too
	if err != nil {
		panic(err) // a mode has its types
	}
	return u
}

// PrintModel prints what a model multiplies, by which instructions and rules.
func PrintModel(w io.Writer, m *mma.Model) error {
	var b strings.Builder
	width := cli.TerminalWidth(w)
	cli.WriteSteps(&b, width, []cli.Step{{"model", m.Name}, {"device", m.Device}, {"evidence", m.Evidence}})
	for _, d := range m.Modes() {
		last := d.Types[len(d.Types)-1]
		operands := typeNames(d.Types)
		if d.Mixed {
			operands = "any two of " + operands
		}
		fmt.Fprintf(&b, "\n%s\n", operands)
		steps := []cli.Step{}
		for _, out := range d.Results {
			u, err := m.Unit(mma.Options{A: last, Out: out})
			if err != nil {
				return err
			}
			steps = append(steps, cli.Step{"to " + out.Name, u.Rule()})
		}
		u := usual(m, d)
		if u.Scale != nil {
			steps = append(steps, cli.Step{"scales", fmt.Sprintf("%s, one for %d elements", strings.Join(cli.Names(d.Scales), " or "), u.Block)})
		}
		for _, k := range u.Ks() {
			v, err := m.Unit(mma.Options{A: last, K: k})
			if err != nil {
				return err
			}
			steps = append(steps, cli.Step{fmt.Sprintf("K = %d", k), strings.Join(v.Instructions(), ", ")})
		}
		cli.WriteSteps(&b, width, steps)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ModelDocument is a matrix unit as JSON.
type ModelDocument struct {
	Name     string         `json:"name"`
	Device   string         `json:"device"`
	Evidence string         `json:"evidence"`
	Units    []unitDocument `json:"units"`
}

type unitDocument struct {
	A            string   `json:"a"`
	B            string   `json:"b"`
	Result       string   `json:"result"`
	Scale        *string  `json:"scale"`        // null: not scaled
	Block        int      `json:"scale_block"`  // elements that share a scale; 0: not scaled
	K            []int    `json:"k"`            // of the instructions, the usual one first
	Group        int      `json:"group"`        // products of a fused addition
	Rule         string   `json:"rule"`         // in words
	Instructions []string `json:"instructions"` // with the usual K
}

// ModelDocuments returns matrix units as JSON.
func ModelDocuments(models []*mma.Model) []ModelDocument {
	var documents []ModelDocument
	for _, m := range models {
		d := ModelDocument{Name: m.Name, Device: m.Device, Evidence: m.Evidence}
		for _, u := range m.Units() {
			unit := unitDocument{A: u.A.Name, B: u.B.Name, Result: u.Out.Name, Block: u.Block, K: u.Ks(), Group: u.Group, Rule: u.Rule(), Instructions: u.Instructions()}
			if u.Scale != nil {
				unit.Scale = &u.Scale.Name
			}
			d.Units = append(d.Units, unit)
		}
		documents = append(documents, d)
	}
	return documents
}

// ModelTable lists the operands of matrix units, a row for each mode.
func ModelTable(models []*mma.Model) table.Writer {
	t := cli.NewTable(cli.Left("model"), cli.Left("A, B"), cli.Left("scales"), cli.Right("K"), cli.Left("result"))
	for _, m := range models {
		for _, d := range m.Modes() {
			scales := "-"
			if len(d.Scales) > 0 {
				scales = typeNames(d.Scales)
			}
			t.AppendRow(table.Row{m.Name, typeNames(d.Types), scales, usual(m, d).K, typeNames(d.Results)})
		}
	}
	return t
}
