package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/mma"
)

// list prints the table of models, or the rules of the one that is given.
func (f *mmaFlags) list(w io.Writer, args []string, asJSON bool) error {
	for _, flag := range []*choice[*mma.Type]{f.a, f.b, f.scale, f.to} {
		if flag.given {
			return misuse("nothing to compute: add --raw or --explain")
		}
	}
	if len(args) > 0 || *f.k != 0 {
		return misuse("nothing to compute: add --raw or --explain")
	}
	models := mma.Models()
	if f.model.given {
		models = []*mma.Model{f.model.value}
	}
	if asJSON {
		return printJSON(w, map[string]any{"models": modelDocuments(models)})
	}
	if f.model.given {
		return printModel(w, f.model.value)
	}
	t := newTable(column{"model", false}, column{"A, B", false}, column{"scales", false}, column{"K", true}, column{"result", false})
	for _, m := range models {
		for _, d := range m.Modes() {
			scales := "-"
			if len(d.Scales) > 0 {
				scales = typeNames(d.Scales)
			}
			t.AppendRow(table.Row{m.Name, typeNames(d.Types), scales, usual(m, d).K, typeNames(d.Results)})
		}
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func typeNames(types []*mma.Type) string { return strings.Join(stringers(types), ", ") }

// usual returns the unit of a mode's first types.
func usual(m *mma.Model, d mma.Mode) *mma.Unit {
	u, err := m.Unit(mma.Options{A: d.Types[len(d.Types)-1]}) // the last type: earlier modes may have the first ones too
	if err != nil {
		panic(err) // a mode has its types
	}
	return u
}

// printModel prints what a model multiplies, by which instructions and rules.
func printModel(w io.Writer, m *mma.Model) error {
	var b strings.Builder
	width := terminalWidth(w)
	writeSteps(&b, width, []step{{"model", m.Name}, {"device", m.Device}, {"evidence", m.Evidence}})
	for _, d := range m.Modes() {
		last := d.Types[len(d.Types)-1]
		operands := typeNames(d.Types)
		if d.Mixed {
			operands = "any two of " + operands
		}
		fmt.Fprintf(&b, "\n%s\n", operands)
		steps := []step{}
		for _, out := range d.Results {
			u, err := m.Unit(mma.Options{A: last, Out: out})
			if err != nil {
				return err
			}
			steps = append(steps, step{"to " + out.Name, u.Rule()})
		}
		u := usual(m, d)
		if u.Scale != nil {
			steps = append(steps, step{"scales", fmt.Sprintf("%s, one for %d elements", strings.Join(stringers(d.Scales), " or "), u.Block)})
		}
		for _, k := range u.Ks() {
			v, err := m.Unit(mma.Options{A: last, K: k})
			if err != nil {
				return err
			}
			steps = append(steps, step{fmt.Sprintf("K = %d", k), strings.Join(v.Instructions(), ", ")})
		}
		writeSteps(&b, width, steps)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
	Rule         string   `json:"rule"`         // in words
	Instructions []string `json:"instructions"` // with the usual K
}

func modelDocuments(models []*mma.Model) []modelDocument {
	var documents []modelDocument
	for _, m := range models {
		d := modelDocument{Name: m.Name, Device: m.Device, Evidence: m.Evidence}
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
