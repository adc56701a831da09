package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// lineWidth is the width of curves.
const lineWidth = 1.8

// smoothing returns the number of steps over which training losses are averaged: a fiftieth of
// all, rounded up.
func (c *Comparison) smoothing() int {
	steps := 0
	for i := range c.Recipes {
		steps = max(steps, len(c.Recipes[i].Train))
	}
	return max(1, (steps+49)/50)
}

// A curveChart is a chart with a line for each recipe.
type curveChart struct {
	title, note string
	points      func(*Recipe) []Point
	gap         bool // of a loss to the baseline's, as a share
	named       bool // with names at the ends of the lines
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
	from := c.zoom()
	zoomed := ""
	if from > 0 {
		zoomed = fmt.Sprintf(", from step %d", from)
	}
	charts := []curveChart{
		{title: "Training loss, nats per " + c.Token + average(n), points: func(r *Recipe) []Point { return smooth(r.Train, n) }},
		{title: "Validation loss, nats per " + c.Token + zoomed, named: true,
			points: func(r *Recipe) []Point { return after(r.Validation, from) }},
	}
	if b := c.baseline(); b != nil {
		wide := n
		if n > 1 {
			wide = 5 * n
		}
		note := fmt.Sprintf("Above the line is worse than %s. Gray: within the noise of one seed (±%s).", b.Name, plainPercent(c.curveNoise()))
		charts = append(charts,
			curveChart{title: "Gap of the training loss to " + b.Name + average(wide), note: note, gap: true,
				points: func(r *Recipe) []Point { return smooth(gaps(r.Train, b.Train), wide) }},
			curveChart{title: "Gap of the validation loss to " + b.Name, note: note, gap: true, named: true,
				points: func(r *Recipe) []Point { return gaps(r.Validation, b.Validation) }})
	}
	var panels []panel
	for _, chart := range charts {
		p, err := c.curvePanel(chart)
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	return panels, nil
}

// zoom returns the step from which on validation losses are drawn: early ones are so much
// larger that recipes could not be told apart. It returns 0 for few points.
func (c *Comparison) zoom() int {
	const fewest = 3
	var steps []int
	for i := range c.Recipes {
		if v := c.Recipes[i].Validation; len(v) > len(steps) {
			steps = steps[:0]
			for _, p := range v {
				steps = append(steps, p.Step)
			}
		}
	}
	if len(steps) <= fewest {
		return 0
	}
	return steps[min(len(steps)/2, len(steps)-fewest)]
}

// after returns the points from a step on.
func after(points []Point, from int) []Point {
	var list []Point
	for _, p := range points {
		if p.Step >= from {
			list = append(list, p)
		}
	}
	return list
}

// curvePanel draws a chart.
func (c *Comparison) curvePanel(chart curveChart) (panel, error) {
	p := newPlot("step", horizontal)
	result := panel{title: chart.title, note: chart.note, plot: p, width: chartWidth, height: chartHeight}
	lines := make([]plotter.XYs, len(c.Recipes))
	first, last := math.Inf(1), math.Inf(-1)
	for i := range c.Recipes {
		r := &c.Recipes[i]
		if chart.gap && r.Name == c.Baseline {
			continue // a line of zeros
		}
		for _, q := range chart.points(r) {
			lines[i] = append(lines[i], plotter.XY{X: float64(q.Step), Y: q.Loss})
			if !math.IsNaN(q.Loss) && !math.IsInf(q.Loss, 0) {
				first, last = min(first, float64(q.Step)), max(last, float64(q.Step))
			}
		}
	}
	if last < first {
		return result, nil // no data
	}
	if !chart.named {
		first = 0
	}
	p.X.Min, p.X.Max = first, max(last, first+1)
	if chart.gap {
		p.Y.Tick.Marker = plot.TickerFunc(percentTicks)
		if noise := c.curveNoise(); noise > 0 {
			if err := addBand(p, noise); err != nil {
				return result, err
			}
		}
		addLevel(p, 0)
	}
	ends := &endLabels{size: fontSize - 1}
	for _, baseline := range []bool{false, true} { // the baseline on top
		for i, xys := range lines {
			if (c.Recipes[i].Name == c.Baseline) != baseline {
				continue
			}
			if err := addLine(p, i, xys); err != nil {
				return result, err
			}
			if runs := finiteRuns(xys); len(runs) > 0 {
				run := runs[len(runs)-1]
				ends.add(run[len(run)-1], c.Recipes[i].Name, series(i))
			}
		}
	}
	if chart.named {
		p.Add(ends)
		p.X.Tick.Marker = upTo(p.X.Max)
		p.X.Max += 0.3 * (p.X.Max - p.X.Min) // space for the names
	}
	widen(&p.Y)
	return result, nil
}

// upTo returns the ticks of roundTicks up to a value; the axis may extend beyond it.
func upTo(last float64) plot.TickerFunc {
	return func(low, _ float64) []plot.Tick { return roundTicks(low, last) }
}
