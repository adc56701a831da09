package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// SQNRTable returns the signal to quantization noise ratio of the observed operands: a row for
// each recipe and operand that loses anything, with the median of each direction, and the
// lowest value with its module and step.
func (c *Comparison) SQNRTable() (t Table, recipes []int) {
	t.Columns = []Column{
		{"recipe", "", "", false}, {"operand", "", "", false},
		{"rowwise dB", "", "median over modules and steps", true}, {"columnwise dB", "", "median over modules and steps", true},
		{"lowest dB", "", "of both directions", true}, {"where", "", "module and step of the lowest", false},
		{"highest dB", "", "of both directions", true},
		{"saturated", "", "elements beyond the largest value of their block", true}, {"flushed", "", "elements that became zero", true},
	}
	for i := range c.Recipes {
		for _, name := range c.operandNames() {
			if row := c.Recipes[i].sqnrRow(name); row != nil {
				t.Rows, recipes = append(t.Rows, row), append(recipes, i)
			}
		}
	}
	return t, recipes
}

// sqnrRow returns the row of an operand, or nil if none that loses anything was observed.
func (r *Recipe) sqnrRow(name string) []string {
	values := map[string][]float64{}
	var lowest, highest *Operand
	var saturated, flushed, elements int64
	for i := range r.Operands {
		o := &r.Operands[i]
		if o.Name != name || math.IsInf(o.SQNR, 0) || math.IsNaN(o.SQNR) {
			continue
		}
		values[o.Direction] = append(values[o.Direction], o.SQNR)
		saturated, flushed, elements = saturated+o.Saturated, flushed+o.Flushed, elements+o.Elements
		if lowest == nil || o.SQNR < lowest.SQNR {
			lowest = o
		}
		if highest == nil || o.SQNR > highest.SQNR {
			highest = o
		}
	}
	if lowest == nil {
		return nil
	}
	return []string{
		r.Name, name, medianText(values["rowwise"]), medianText(values["columnwise"]),
		fmt.Sprintf("%.1f", lowest.SQNR), fmt.Sprintf("%s, step %d", lowest.Module, lowest.Step), fmt.Sprintf("%.1f", highest.SQNR),
		shown(float64(saturated)/float64(elements), show.Percent), shown(float64(flushed)/float64(elements), show.Percent),
	}
}

// medianText formats the median of values, or "–" if there are none.
func medianText(values []float64) string {
	n := len(values)
	if n == 0 {
		return "–"
	}
	slices.Sort(values)
	return fmt.Sprintf("%.1f", (values[(n-1)/2]+values[n/2])/2)
}
