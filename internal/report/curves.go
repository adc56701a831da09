package report

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// lineWidth is the width of curves.
const lineWidth = 1.8

// smoothing returns the number of steps over which training losses are averaged: a fiftieth of
// all.
func (c *Comparison) smoothing() int {
	steps := 0
	for i := range c.Recipes {
		steps = max(steps, len(c.Recipes[i].Train))
	}
	return max(1, steps/50)
}

// curves returns the charts of losses by step and of their gaps to the baseline.
func (c *Comparison) curves() ([]panel, error) {
	n := c.smoothing()
	average := func(n int) string {
		if n == 1 {
			return ""
		}
		return fmt.Sprintf(", means of %d steps", n)
	}
	panels := []panel{
		{title: "Training loss, nats per " + c.Token + average(n)},
		{title: "Validation loss, nats per " + c.Token},
	}
	points := []func(*Recipe) []Point{
		func(r *Recipe) []Point { return smooth(r.Train, n) },
		func(r *Recipe) []Point { return r.Validation },
	}
	b := c.baseline()
	if b != nil {
		wide := n
		if n > 1 {
			wide = 5 * n
		}
		others := func(points func(*Recipe) []Point) func(*Recipe) []Point {
			return func(r *Recipe) []Point {
				if r == b {
					return nil
				}
				return points(r)
			}
		}
		panels = append(panels,
			panel{title: "Gap of the training loss to " + b.Name + average(wide), note: "Above the line is worse. All recipes see the same batches in the same order."},
			panel{title: "Gap of the validation loss to " + b.Name, note: "Above the line is worse. All recipes are evaluated on the same text."})
		points = append(points,
			others(func(r *Recipe) []Point { return smooth(gaps(r.Train, b.Train), wide) }),
			others(func(r *Recipe) []Point { return gaps(r.Validation, b.Validation) }))
	}
	for i := range panels {
		p := newPlot("step", horizontal)
		panels[i].plot, panels[i].width, panels[i].height = p, chartWidth, chartHeight
		if err := c.addCurves(p, points[i]); err != nil {
			return nil, err
		}
		if panels[i].empty() {
			continue
		}
		p.X.Min, p.X.Max = 0, max(p.X.Max, 1)
		if i >= 2 { // a gap
			p.Y.Tick.Marker = plot.TickerFunc(percentTicks)
			addLevel(p, 0)
		}
		widen(&p.Y)
	}
	return panels, nil
}

// addCurves adds a line for each recipe, the baseline's on top.
func (c *Comparison) addCurves(p *plot.Plot, points func(*Recipe) []Point) error {
	for _, baseline := range []bool{false, true} {
		for i := range c.Recipes {
			if (c.Recipes[i].Name == c.Baseline) != baseline {
				continue
			}
			var xys plotter.XYs
			for _, q := range points(&c.Recipes[i]) {
				xys = append(xys, plotter.XY{X: float64(q.Step), Y: q.Loss})
			}
			if err := addLine(p, i, xys); err != nil {
				return err
			}
		}
	}
	return nil
}
