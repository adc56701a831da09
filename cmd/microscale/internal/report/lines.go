package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Line is one curve with a name. Points whose Y is not finite are left out.
type Line struct {
	Name string
	X, Y []float64
}

// A Chart is a file with lines over a common axis, in the style of the pages.
type Chart struct {
	Title, X, Y string // what the axes show, with units
	PowersOfTwo bool   // the X axis is logarithmic, with ticks at powers of two
	Lines       []Line
}

// SVG draws the chart, with a legend below it, where it covers no line. It returns an error if no line has a point.
func (c Chart) SVG() ([]byte, error) {
	p := newPlot(c.X, horizontal)
	p.Title.Text, p.Title.Padding, p.Y.Label.Text = c.Title, 8, c.Y
	p.Title.TextStyle.Font, p.Title.TextStyle.Color = p.X.Label.TextStyle.Font, ink
	legend := plot.NewLegend()
	legend.TextStyle.Font, legend.TextStyle.Color = p.X.Label.TextStyle.Font, ink
	legend.Left, legend.Padding = true, 2
	drawn := 0
	for _, l := range c.Lines {
		points := finiteOnly(l.points(c.PowersOfTwo))
		if len(points) == 0 {
			continue
		}
		if err := addMarked(p, drawn, points); err != nil {
			return nil, err
		}
		key, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		key.LineStyle = lineStyle(drawn)
		legend.Add(l.Name, key)
		drawn++
	}
	if drawn == 0 {
		return nil, fmt.Errorf("chart %q: no line has a finite point", c.Title)
	}
	if c.PowersOfTwo {
		p.X.Tick.Marker = plot.TickerFunc(powers)
	}
	widen(&p.Y)
	const width, height, margin = 540, 324, 6
	canvas := vgsvg.New(width, height)
	whole := draw.New(canvas)
	whole.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}}) // for viewers with a dark page
	area := draw.Crop(whole, margin, -margin, margin, -margin)
	legend.Draw(area)
	p.Draw(draw.Crop(area, 0, 0, legend.Rectangle(area).Size().Y+margin, 0))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return inLight(inCSS(fonts.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans,Arial,sans-serif;")))), nil
}

// points returns the points, X as its binary logarithm on a logarithmic axis.
func (l Line) points(logarithmic bool) plotter.XYs {
	points := make(plotter.XYs, len(l.X))
	for i, x := range l.X {
		if logarithmic {
			x = math.Log2(x)
		}
		points[i] = plotter.XY{X: x, Y: l.Y[i]}
	}
	return points
}

// powers returns ticks at the whole powers of two of a logarithmic axis.
func powers(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Ceil(low - 1e-9); e <= high+1e-9; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: fmt.Sprintf("%.0f", math.Exp2(e))})
	}
	return ticks
}

var (
	variable = regexp.MustCompile(`var\((--[a-z0-9]+)\)`)
	value    = regexp.MustCompile(`(--[a-z0-9]+): (#[0-9a-f]{6});`)
)

// inLight replaces the variables of the style sheet by their values in light mode, which come first.
func inLight(svg []byte) []byte {
	values := map[string][]byte{}
	for _, found := range value.FindAllStringSubmatch(Style, -1) {
		if values[found[1]] == nil {
			values[found[1]] = []byte(found[2])
		}
	}
	return variable.ReplaceAllFunc(svg, func(v []byte) []byte { return values[string(variable.FindSubmatch(v)[1])] })
}
