package report

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// memoryPanel returns a bar for each recipe, stacked from the parts of its memory, the first
// recipe at the top, and the keys of the parts.
func (c *Comparison) memoryPanel() (panel, []key, error) {
	const bar, margin = 26, 46
	p := newPlot("MB", vertical)
	result := panel{title: "Memory at the peak of a step, MB", plot: p, width: wideChart}
	parts := memoryColumns[:len(memoryColumns)-1] // the last is the total
	stacks := make([]plotter.Values, len(parts))
	var names []plot.Tick
	var totals plotter.Values
	for i := len(c.Recipes) - 1; i >= 0; i-- {
		m := &c.Recipes[i].Memory
		if *m == (Memory{}) {
			continue
		}
		names = append(names, plot.Tick{Value: float64(len(names)), Label: c.Recipes[i].Name})
		totals = append(totals, float64(m.Total())/1e6)
		for j, part := range parts {
			stacks[j] = append(stacks[j], float64(part.bytes(m))/1e6)
		}
	}
	result.height = vg.Length(bar*len(names) + margin)
	if len(names) == 0 {
		return result, nil, nil
	}
	p.Y.Tick.Marker, p.Y.Padding = plot.ConstantTicks(names), barPadding
	var below *plotter.BarChart
	var keys []key
	for j := range stacks {
		b, err := plotter.NewBarChart(stacks[j], 0.62*bar)
		if err != nil {
			return result, nil, err
		}
		b.Horizontal, b.Color, b.LineStyle = true, series(j), draw.LineStyle{}
		if below != nil {
			b.StackOn(below)
		}
		below = b
		p.Add(b)
		keys = append(keys, key{Name: parts[j].Title, Doc: parts[j].Doc, Color: keyColor(j)})
	}
	ends := &endLabels{size: fontSize}
	for i, total := range totals {
		ends.add(plotter.XY{X: total, Y: float64(i)}, shown(total, show.ThreeDigits), ink)
	}
	p.X.Max *= 1.08 // the longest stack, and space for its label
	p.Add(ends)
	return result, keys, nil
}
