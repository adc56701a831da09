package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A look is what the line of one format is drawn in.
type look struct {
	color  color.RGBA
	dashed bool
	mark   draw.GlyphDrawer
}

// The colors stay apart for eyes that see less of red or green, too.
var (
	blue   = color.RGBA{0, 114, 178, 255}
	orange = color.RGBA{230, 140, 0, 255}
	green  = color.RGBA{0, 140, 100, 255}
	red    = color.RGBA{205, 60, 30, 255}
	violet = color.RGBA{125, 60, 152, 255}
	sky    = color.RGBA{70, 170, 225, 255}
	black  = color.RGBA{40, 40, 40, 255}
)

// looks are those of the formats in their order, from the first on again where there
// are more.
var looks = []look{
	{blue, false, draw.CircleGlyph{}},
	{orange, false, draw.BoxGlyph{}},
	{green, false, draw.PyramidGlyph{}},
	{red, false, draw.CircleGlyph{}},
	{violet, false, draw.BoxGlyph{}},
	{sky, false, draw.PyramidGlyph{}},
	{black, false, draw.CircleGlyph{}},
	{blue, true, draw.SquareGlyph{}},
	{orange, true, draw.TriangleGlyph{}},
	{green, true, draw.RingGlyph{}},
	{red, true, draw.SquareGlyph{}},
	{violet, true, draw.TriangleGlyph{}},
	{sky, true, draw.RingGlyph{}},
	{black, true, draw.SquareGlyph{}},
}

// chart draws the speed of each format over the sizes as an SVG: a column of panels
// for each baseline, the product alone above, with quantizing included below; the
// names of the lines on the right.
func (s sweep) chart() ([]byte, error) {
	const width, height, names = 13.2 * vg.Inch, 9 * vg.Inch, 1.8 * vg.Inch
	margin := vg.Points(10)
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())

	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding, legend.ThumbnailWidth = vg.Points(5), vg.Points(34)
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
	panels := make([][]*plot.Plot, 2)
	for i, quantizing := range []bool{false, true} {
		for k := range baselines {
			p := s.panel(k, quantizing)
			for j := len(baselines); j < len(s.formats); j++ {
				line, marks, err := s.line(j, k, quantizing)
				if err != nil {
					return nil, err
				}
				p.Add(line, marks)
				if i == 0 && k == 0 {
					legend.Add(s.formats[j].Name, line, marks)
				}
			}
			panels[i] = append(panels[i], p)
		}
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: len(baselines), PadX: vg.Points(18), PadY: vg.Points(14), PadTop: margin, PadBottom: margin, PadLeft: margin}
	for i, row := range plot.Align(panels, tiles, draw.Crop(all, 0, -names, 0, 0)) {
		for k, c := range row {
			panels[i][k].Draw(c)
		}
	}
	legend.Draw(draw.Crop(all, width-names+margin, -margin, margin, -4*margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// panel returns the plot of the speeds relative to one baseline, without lines.
func (s sweep) panel(baseline int, quantizing bool) *plot.Plot {
	p := plot.New()
	name := s.formats[baseline].Name
	p.Title.Text = "Product of square matrices, speed relative to " + name
	if quantizing {
		p.Title.Text = "The same with quantizing one matrix, relative to " + name
	}
	p.X.Label.Text = "size"
	p.Y.Label.Text = "times as fast as " + name
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizeTicks(s.sizes)
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(speedTicks)
	p.X.Min, p.X.Max = float64(s.sizes[0]), float64(s.sizes[len(s.sizes)-1])*1.0001 // a single size is a range too
	p.Y.Min, p.Y.Max = 0.8, 1.25
	for i := range s.sizes { // the same in both panels of a column
		for j := len(baselines); j < len(s.formats); j++ {
			p.Y.Min = min(p.Y.Min, s.speed(i, j, baseline, true))
			p.Y.Max = max(p.Y.Max, s.speed(i, j, baseline, false))
		}
	}
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	one := plotter.NewFunction(func(float64) float64 { return 1 })
	one.Color, one.Width = color.Gray{120}, vg.Points(1)
	p.Add(grid, one)
	return p
}

// line returns the line of a format, and the marks of its points.
func (s sweep) line(format, baseline int, quantizing bool) (*plotter.Line, *plotter.Scatter, error) {
	xys := make(plotter.XYs, len(s.sizes))
	for i, n := range s.sizes {
		xys[i] = plotter.XY{X: float64(n), Y: s.speed(i, format, baseline, quantizing)}
	}
	line, marks, err := plotter.NewLinePoints(xys)
	if err != nil {
		return nil, nil, err
	}
	l := looks[(format-len(baselines))%len(looks)]
	line.Color, line.Width = l.color, vg.Points(1.5)
	if l.dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: l.color, Radius: vg.Points(3.2), Shape: l.mark}
	return line, marks, nil
}

// sizeTicks are the sizes as marks of an axis.
type sizeTicks []int

func (t sizeTicks) Ticks(float64, float64) []plot.Tick {
	ticks := make([]plot.Tick, len(t))
	for i, n := range t {
		ticks[i] = plot.Tick{Value: float64(n), Label: fmt.Sprint(n)}
	}
	return ticks
}

// speedTicks are round marks of a logarithmic axis.
func speedTicks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(least))); decade <= most; decade *= 10 {
		for _, digits := range []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
			if v := decade * digits; v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
			}
		}
	}
	return ticks
}
