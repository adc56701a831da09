package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// barPadding is the distance of bars from the axis below.
const barPadding = 10

// formatPanel returns a bar chart of the increase in perplexity in each format, the first
// format at the top.
func (c *Comparison) formatPanel() (panel, error) {
	const bar, margin = 20, 42
	p := newPlot("", vertical)
	p.X.Tick.Marker = plot.TickerFunc(percentTicks)
	var costs plotter.Values
	var names []plot.Tick
	for i := len(c.Formats) - 1; i >= 0; i-- {
		f := &c.Formats[i]
		if cost := c.cost(f); !math.IsNaN(cost) && !math.IsInf(cost, 0) {
			names = append(names, plot.Tick{Value: float64(len(costs)), Label: f.Name})
			costs = append(costs, cost)
		}
	}
	result := panel{
		title: "Perplexity of the model of " + c.Baseline + " quantized after training, relative to as trained",
		plot:  p, width: chartWidth, height: vg.Length(bar*len(costs) + margin),
	}
	if len(costs) == 0 {
		return result, nil
	}
	p.Y.Tick.Marker, p.Y.Padding = plot.ConstantTicks(names), barPadding
	bars, err := plotter.NewBarChart(costs, 0.6*bar)
	if err != nil {
		return result, err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, series(c.index(c.Baseline)), 0
	p.Add(bars)
	widen(&p.X) // space between a negative bar and its name
	return result, nil
}
