// Package chart draws lines over a common axis as an SVG.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

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

// A Chart is a set of lines.
type Chart struct {
	Title, X, Y string // what the axes show, with units
	PowersOfTwo bool   // the X axis is logarithmic, with ticks at powers of two
	Lines       []Line
}

// The colors stay apart for eyes that see less of red or green.
var colors = []color.RGBA{{0, 114, 178, 255}, {230, 140, 0, 255}, {0, 140, 100, 255}, {205, 60, 30, 255}, {125, 60, 152, 255},
	{70, 170, 225, 255}, {40, 40, 40, 255}}

var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{},
	draw.TriangleGlyph{}}

// SVG draws the chart. It returns an error if no line has a point.
func (c Chart) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Title.TextStyle.Font.Variant, p.Title.Padding = "Sans", vg.Points(8)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
	}
	p.Legend.TextStyle.Font.Variant = "Sans"
	p.Legend.Left, p.Legend.Padding = true, vg.Points(2)
	p.Add(plotter.NewGrid())
	drawn := 0
	for i, l := range c.Lines {
		points := l.points(c.PowersOfTwo)
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colors[i%len(colors)], vg.Points(1.5)
		if i >= len(colors) {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		marks.Color, marks.Shape = line.Color, glyphs[i%len(glyphs)]
		p.Add(line, marks)
		p.Legend.Add(l.Name, line, marks)
		drawn++
	}
	if drawn == 0 {
		return nil, fmt.Errorf("chart %q: no line has a finite point", c.Title)
	}
	if c.PowersOfTwo {
		p.X.Tick.Marker = plot.TickerFunc(powers)
	}
	canvas := vgsvg.New(7.5*vg.Inch, 4.5*vg.Inch)
	area := draw.Crop(draw.New(canvas), vg.Points(6), -vg.Points(6), vg.Points(6), -vg.Points(6))
	legend := p.Legend // below the plot, where it covers no line
	p.Legend = plot.NewLegend()
	legend.Draw(area)
	p.Draw(draw.Crop(area, 0, 0, legend.Rectangle(area).Size().Y+vg.Points(6), 0))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// points returns the finite points, X as its binary logarithm on a logarithmic axis.
func (l Line) points(logarithmic bool) plotter.XYs {
	var points plotter.XYs
	for i, x := range l.X {
		if logarithmic {
			x = math.Log2(x)
		}
		if y := l.Y[i]; !math.IsNaN(y) && !math.IsInf(y, 0) {
			points = append(points, plotter.XY{X: x, Y: y})
		}
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
