package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// charts returns the charts of speeds over sizes.
func (s *Speed) charts() ([]panel, error) {
	relative := "Above the line is faster than " + s.Baseline + "."
	var panels []panel
	for _, chart := range []struct {
		title, note string
		percent     bool
		level       float64 // of a horizontal line; NaN for none
		y           func(f *Series, p SpeedPoint) float64
	}{
		{"Speed of the product, 10⁹ operations per second", "Operands quantized beforehand, packing included.", false, math.NaN(),
			func(_ *Series, p SpeedPoint) float64 { return p.Operations / 1e9 }},
		{"Speed relative to " + s.Baseline + ", product only", relative, false, 1, func(_ *Series, p SpeedPoint) float64 {
			product,
				_ := s.Speedup(p)
			return product
		}},
		{"Speed relative to " + s.Baseline + ", both operands quantized from BF16", relative, false, 1, func(_ *Series, p SpeedPoint) float64 {
			_,
				total := s.Speedup(p)
			return total
		}},
		{"Share of quantizing both operands in the total time", "", true, math.NaN(), func(f *Series, p SpeedPoint) float64 {
			if !quantizes(f) {
				return math.NaN()
			}
			return p.Share()
		}},
	} {
		p := newPlot("", horizontal) // gonum misplaces the label of a logarithmic axis
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizeTicks(s.sizes())
		for i := range s.Series {
			f := &s.Series[i]
			var xys plotter.XYs
			for _, q := range f.Points {
				if y := chart.y(f, q); !math.IsNaN(y) && !math.IsInf(y, 0) {
					xys = append(xys, plotter.XY{X: float64(q.Size), Y: y})
				}
			}
			if err := addMarked(p, i, xys); err != nil {
				return nil, err
			}
		}
		c := panel{title: chart.title, note: chart.note, plot: p, width: chartWidth, height: chartHeight}
		if !c.empty() {
			p.Y.Min, p.X.Max = min(p.Y.Min, 0), max(p.X.Max, p.X.Min*2)
			p.X.Min /= 1.15 // keeps the first size off the vertical axis
			if chart.percent {
				p.Y.Tick.Marker = plot.TickerFunc(percentTicks)
			}
			if !math.IsNaN(chart.level) {
				addLevel(p, chart.level)
			}
			p.Y.Max *= 1.04
		}
		panels = append(panels, c)
	}
	return panels, nil
}

// sizeTicks are the sizes as ticks of an axis.
type sizeTicks []int

// Ticks returns them.
func (t sizeTicks) Ticks(float64, float64) []plot.Tick {
	ticks := make([]plot.Tick, len(t))
	for i, n := range t {
		ticks[i] = plot.Tick{Value: float64(n), Label: fmt.Sprint(n)}
	}
	return ticks
}

// roofline returns the chart of speed against arithmetic intensity, below the bandwidth of
// memory and the peaks of instructions.
func (s *Speed) roofline() (panel, error) {
	p := newPlot("", horizontal)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(decadeTicks), plot.TickerFunc(decadeTicks)
	c := panel{
		title: "Roofline: 10⁹ operations per second, by operations per byte of the operands and the result", plot: p, width: wideChart,
		height: 1.3 * chartHeight,
		note: "Lines: the speed at which memory is read, and the peaks of the instructions that bound the kernels. Circles: products of " +
			"square matrices; those that fit in a cache may lie above the line of memory. Triangles: 1, 8 and 64 rows in BF16 by weights from " +
			"memory.",
	}
	for i := range s.Series {
		var square, few plotter.XYs
		for _, q := range s.Series[i].Points {
			square = append(square, q.xy())
		}
		for _, q := range s.Series[i].Few {
			few = append(few, q.xy())
		}
		if err := addMarks(p, i, square, draw.CircleGlyph{}); err != nil {
			return c, err
		}
		if err := addMarks(p, i, few, draw.PyramidGlyph{}); err != nil {
			return c, err
		}
	}
	if c.empty() || !(s.Bandwidth > 0) || len(s.Ceilings) == 0 {
		c.plot = newPlot("", noGrid) // empty
		return c, nil
	}
	top, ridge := 0., math.Inf(1)
	names := &endLabels{size: fontSize, left: true}
	for _, roof := range s.Ceilings {
		top, ridge = max(top, roof.Operations), min(ridge, roof.Operations/s.Bandwidth)
		names.add(plotter.XY{X: roof.Operations / s.Bandwidth, Y: roof.Operations / 1e9},
			fmt.Sprintf("%s %s", roof.Name, shown(roof.Operations/1e9, show.ThreeDigits)), ink)
	}
	const nameSpace = 60 // the range of the axis that a name takes
	p.X.Min, p.X.Max = min(p.X.Min/1.5, ridge/nameSpace), max(p.X.Max, top/s.Bandwidth)*1.5
	p.Y.Min, p.Y.Max = min(p.Y.Min, p.X.Min*s.Bandwidth/1e9)/1.2, max(p.Y.Max, top/1e9)*1.8
	line := func(from, to plotter.XY) error {
		l, err := plotter.NewLine(plotter.XYs{from, to})
		if err != nil {
			return err
		}
		l.LineStyle = draw.LineStyle{Color: axis, Width: 1.2}
		p.Add(l)
		return nil
	}
	if err := line(plotter.XY{X: p.X.Min, Y: p.X.Min * s.Bandwidth / 1e9}, plotter.XY{X: top / s.Bandwidth, Y: top / 1e9}); err != nil {
		return c, err
	}
	for _, roof := range s.Ceilings {
		if err := line(plotter.XY{X: roof.Operations / s.Bandwidth, Y: roof.Operations / 1e9},
			plotter.XY{X: p.X.Max, Y: roof.Operations / 1e9}); err != nil {
			return c, err
		}
	}
	p.Add(names)
	return c, nil
}

func (r Rate) xy() plotter.XY { return plotter.XY{X: r.Intensity, Y: r.Operations / 1e9} }

// decadeTicks returns the powers of ten, and 2 and 5 times them if there are few.
func decadeTicks(low, high float64) []plot.Tick {
	digits := []float64{1, 2, 5}
	if high > 1000*low {
		digits = digits[:1]
	}
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high && decade > 0; decade *= 10 {
		for _, digit := range digits {
			if v := decade * digit; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
			}
		}
	}
	return ticks
}
