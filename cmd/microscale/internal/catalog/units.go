package catalog

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
)

// PrintUnits prints the table of all models, or the rules of only, if that is not nil.
func PrintUnits(w io.Writer, only *mma.Model, asJSON bool) error {
	models := mma.Models()
	if only != nil {
		models = []*mma.Model{only}
	}
	switch {
	case asJSON:
		return show.PrintJSON(w, map[string]any{"models": modelDocuments(models)})
	case only != nil:
		return printModel(w, only)
	}
	_, err := fmt.Fprintln(w, modelTable(models).Render())
	return err
}

// modelTable returns the table of operands, a row for each mode.
func modelTable(models []*mma.Model) table.Writer {
	t := show.NewTable(show.Left("model"), show.Left("A, B"), show.Left("scales"), show.Right("K"), show.Left("result"))
	for _, m := range models {
		for _, d := range m.Modes() {
			scales := "-"
			if len(d.Scales) > 0 {
				scales = typeNames(d.Scales)
			}
			t.AppendRow(table.Row{m.Name, typeNames(d.Types), scales, d.K[0], typeNames(d.Results)})
		}
	}
	return t
}

// typeNames joins the names of operand types with commas.
func typeNames(types []*mma.Type) string { return strings.Join(flags.Names(types), ", ") }

// printModel prints the operands, rules and instructions of a model.
func printModel(w io.Writer, m *mma.Model) error {
	var b strings.Builder
	width := show.TerminalWidth(w)
	show.WriteSteps(&b, width, []show.Step{{"model", m.Name}, {"device", m.Device}, {"evidence", m.Evidence}})
	for _, d := range m.Modes() {
		last := d.Types[len(d.Types)-1] // earlier modes may share the first types
		operands := typeNames(d.Types)
		if d.Mixed {
			operands = "any two of " + operands
		}
		fmt.Fprintf(&b, "\n%s\n", operands)
		steps := []show.Step{}
		for _, out := range d.Results {
			u, err := m.Unit(mma.Options{A: last, Out: out})
			if err != nil {
				return err
			}
			steps = append(steps, show.Step{"to " + out.Name, u.Rule()})
		}
		if len(d.Scales) > 0 {
			steps = append(steps, show.Step{"scales", fmt.Sprintf("%s, one for %d elements", strings.Join(flags.Names(d.Scales), " or "), d.Block)})
		}
		for _, k := range d.K {
			u, err := m.Unit(mma.Options{A: last, K: k})
			if err != nil {
				return err
			}
			steps = append(steps, show.Step{fmt.Sprintf("K = %d", k), strings.Join(u.Instructions(), ", ")})
		}
		show.WriteSteps(&b, width, steps)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// modelDocument is a matrix unit as JSON.
type modelDocument struct {
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
	Rule         string   `json:"rule"`         // as text
	Instructions []string `json:"instructions"` // with the usual K
}

func modelDocuments(models []*mma.Model) []modelDocument {
	var documents []modelDocument
	for _, m := range models {
		d := modelDocument{Name: m.Name, Device: m.Device, Evidence: m.Evidence}
		for _, u := range m.Units() {
			unit := unitDocument{A: u.A.Name, B: u.B.Name, Result: u.Out.Name, Block: u.Block, K: u.Ks(), Group: u.Group, Rule: u.Rule(),
				Instructions: u.Instructions()}
			if u.Scale != nil {
				unit.Scale = &u.Scale.Name
			}
			d.Units = append(d.Units, unit)
		}
		documents = append(documents, d)
	}
	return documents
}
