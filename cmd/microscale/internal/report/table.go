package report

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Column is a column of a table.
type Column struct {
	Title   string
	Short   string // title for a terminal, in one or two lines; "" if a terminal lacks the column
	Doc     string // explanation, if the title does not suffice
	Numeric bool
}

// A Table is a table of text, for a page or a terminal.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// A recipeColumn is a column of the table of recipes.
type recipeColumn struct {
	Column
	text func(c *Comparison, r *Recipe) string
}

var recipeColumns = []recipeColumn{
	{Column{"recipe", "recipe", "", false}, func(_ *Comparison, r *Recipe) string { return r.Name }},
	{Column{"train", "train\nloss", "training loss at the end, nats per token", true}, func(_ *Comparison, r *Recipe) string {
		training, _ := r.Losses()
		return lossText(training)
	}},
	{Column{"validation", "val\nloss", "validation loss at the end, nats per token", true}, func(_ *Comparison, r *Recipe) string {
		_, validation := r.Losses()
		return lossText(validation)
	}},
	{Column{"gap", "gap", "validation loss relative to the baseline's; of several seeds the mean, ± its standard error", true},
		func(c *Comparison, r *Recipe) string {
			if r.Name == c.Baseline {
				return ""
			}
			return shown(c.Gap(r), show.Change) + errorText(c.GapError(r))
		}},
	{Column{"noise", "", "gaps below this may be chance: two standard errors, of the seeds or of the windows of the validation text", true},
		func(c *Comparison, r *Recipe) string {
			if r.Name == c.Baseline || math.IsNaN(c.Gap(r)) {
				return ""
			}
			return "±" + plainPercent(c.Noise(r))
		}},
	{Column{"s/step", "s/step", "median seconds of a step", true},
		func(_ *Comparison, r *Recipe) string { return secondsText(r.SecondsPerStep) }},
	{Column{"copies MB", "wts.\nMB", "copies of weights that products take, at the peak of a step: rowwise and columnwise", true},
		func(_ *Comparison, r *Recipe) string {
			return megabytes(r.Memory.Rowwise + r.Memory.Columnwise)
		}},
	{Column{"activations MB", "act.\nMB", "what the forward pass saves for the backward pass", true},
		func(_ *Comparison, r *Recipe) string { return megabytes(r.Memory.Activations) }},
	{Column{"all MB", "all\nMB", "all that is held at the peak of a step: these, FP32 master weights, gradients and moments, and " +
		"scratch memory", true}, func(_ *Comparison, r *Recipe) string {
		return megabytes(r.Memory.Total())
	}},
	{Column{"saturated", "satu-\nrated", "elements beyond the largest value of their block, of all observed operands", true},
		func(_ *Comparison, r *Recipe) string { return shown(r.Saturated(), show.Percent) }},
	{Column{"flushed", "flushed", "elements that became zero, of all observed operands", true},
		func(_ *Comparison, r *Recipe) string { return shown(r.Flushed(), show.Percent) }},
}

// Table returns the table of recipes. A recipe that did not finish has its figures so far and
// no final loss.
func (c *Comparison) Table() Table {
	var t Table
	for _, column := range recipeColumns {
		t.Columns = append(t.Columns, column.Column)
	}
	for i := range c.Recipes {
		var row []string
		for _, column := range recipeColumns {
			row = append(row, column.text(c, &c.Recipes[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// memoryColumns are the columns of MemoryTable after the recipe.
var memoryColumns = []struct {
	Column
	bytes func(m *Memory) int64
}{
	{Column{"masters", "masters", "FP32 weights of the optimizer", true}, func(m *Memory) int64 { return m.Masters }},
	{Column{"gradients", "gradients", "FP32, of weights", true}, func(m *Memory) int64 { return m.Gradients }},
	{Column{"moments", "moments", "FP32, of the optimizer", true}, func(m *Memory) int64 { return m.Moments }},
	{Column{"rowwise", "rowwise", "copies of weights for fprop", true}, func(m *Memory) int64 { return m.Rowwise }},
	{Column{"columnwise", "columnwise", "copies of weights for dgrad", true}, func(m *Memory) int64 { return m.Columnwise }},
	{Column{"activations", "activations", "saved for the backward pass", true}, func(m *Memory) int64 { return m.Activations }},
	{Column{"scratch", "scratch", "pooled operands, and weights during rounding", true}, func(m *Memory) int64 { return m.Scratch }},
	{Column{"all", "all", "", true}, func(m *Memory) int64 { return m.Total() }},
}

// MemoryTable returns the memory of each recipe at the peak of a step, in megabytes. It has no
// rows if the memory is unknown.
func (c *Comparison) MemoryTable() Table {
	t := Table{Columns: []Column{{"MB", "MB", "", false}}}
	for _, column := range memoryColumns {
		t.Columns = append(t.Columns, column.Column)
	}
	for i := range c.Recipes {
		r := &c.Recipes[i]
		if r.Memory == (Memory{}) {
			continue
		}
		row := []string{r.Name}
		for _, column := range memoryColumns {
			row = append(row, megabytes(column.bytes(&r.Memory)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// FormatTable returns what the trained model loses in each format.
func (c *Comparison) FormatTable() Table {
	t := Table{Columns: []Column{
		{"format", "format", "", false}, {"bits", "bits", "of an element, its share of the scales included", true},
		{"validation", "val\nloss", "validation loss, nats per token", true},
		{"perplexity", "perplexity", "e to the loss", true}, {"change", "change", "of the perplexity, relative to the model as it was trained",
			true},
		{"±", "±", "standard error of the change over the windows of the validation text", true},
	}}
	row := func(name, bits string, loss float64, change, e string) {
		perplexity := "–"
		if p := Perplexity(loss); !math.IsNaN(p) && !math.IsInf(p, 0) {
			perplexity = fmt.Sprintf("%.4f", p)
		}
		t.Rows = append(t.Rows, []string{name, bits, lossText(loss), perplexity, change, e})
	}
	if b := c.baseline(); b != nil {
		row("as trained", "", b.ValidationLoss, "", "")
	}
	for i := range c.Formats {
		f := &c.Formats[i]
		row(f.Name, fmt.Sprintf("%.4g", f.Bits), f.Loss, shown(c.cost(f), show.Change), plainPercent(c.costError(f)))
	}
	return t
}

// secondsText formats the seconds of a step, with three digits if they are few.
func secondsText(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3f", s)
	}
	return shown(s, show.ThreeDigits)
}

func megabytes(n int64) string {
	if n == 0 {
		return "–"
	}
	return shown(float64(n)/1e6, show.ThreeDigits)
}
