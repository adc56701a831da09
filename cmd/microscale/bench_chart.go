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

// chart draws the speed of each format over the sizes as an SVG: a panel for each
// baseline, a line for the product alone and a dashed one with quantizing
// included; the names of the lines on the right.
func (s sweep) chart() ([]byte, error) {
	const width, height, names = 12 * vg.Inch, 5.5 * vg.Inch, 1.7 * vg.Inch
	margin := vg.Points(10)
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())

	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = vg.Points(4)
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(9)
	panels := make([]*plot.Plot, len(baselines))
	for k := range panels {
		panels[k] = s.panel(k)
	}
	for j := len(baselines); j < len(s.formats); j++ {
		alone, dashed, err := s.lines(j, panels)
		if err != nil {
			return nil, err
		}
		legend.Add(s.formats[j].Name, alone)
		if j == len(s.formats)-1 {
			grayed := *dashed
			grayed.Color = color.Gray{90}
			legend.Add("with quantizing", &grayed)
		}
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(18), PadTop: margin, PadBottom: margin, PadLeft: margin}
	for k, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.Crop(all, 0, -names, 0, 0))[0] {
		panels[k].Draw(c)
	}
	legend.Draw(draw.Crop(all, width-names+margin, -margin, margin, -4*margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// panel returns the plot of the speeds relative to one baseline, without lines.
func (s sweep) panel(baseline int) *plot.Plot {
	p := plot.New()
	name := s.formats[baseline].Name
	p.Title.Text = "Product of square matrices, speed relative to " + name
	p.X.Label.Text = "size"
	p.Y.Label.Text = "times as fast as " + name
	p.X.Scale, p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogScale{}, sizeTicks(s.sizes), plot.TickerFunc(speedTicks)
	p.X.Min, p.X.Max = float64(s.sizes[0]), float64(s.sizes[len(s.sizes)-1])*1.0001 // a single size is a range too
	p.Y.Min, p.Y.Max = 0, 1
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

// lines adds the lines of a format to the panels, and returns a pair of them.
func (s sweep) lines(format int, panels []*plot.Plot) (alone, dashed *plotter.Line, err error) {
	for k, p := range panels {
		if alone, err = plotter.NewLine(s.line(format, k, false)); err != nil {
			return nil, nil, err
		}
		if dashed, err = plotter.NewLine(s.line(format, k, true)); err != nil {
			return nil, nil, err
		}
		for _, l := range []*plotter.Line{alone, dashed} {
			l.Color, l.Width = hue(format-len(baselines), len(s.formats)-len(baselines)), vg.Points(1.6)
		}
		dashed.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(alone, dashed)
	}
	return alone, dashed, nil
}

// line returns the points of one line.
func (s sweep) line(format, baseline int, quantizing bool) plotter.XYs {
	xys := make(plotter.XYs, len(s.sizes))
	for i, n := range s.sizes {
		xys[i] = plotter.XY{X: float64(n), Y: s.speed(i, format, baseline, quantizing)}
	}
	return xys
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

// speedTicks are some ten marks or fewer, of round distances.
func speedTicks(_, most float64) []plot.Tick {
	step := 0.1
	for _, factor := range []float64{2, 2.5, 2, 2, 2.5, 2, 2, 2.5, 2} { // 0.2, 0.5, 1, 2, 5, …
		if most/step <= 10 {
			break
		}
		step *= factor
	}
	var ticks []plot.Tick
	for i := 0; float64(i)*step <= most; i++ {
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: fmt.Sprintf("%.4g", float64(i)*step)})
	}
	return ticks
}

// hue returns color i of n around the color circle, neighbors of different
// brightness.
func hue(i, n int) color.Color {
	h := 6 * float64(i) / float64(n)
	value := []float64{0.85, 0.6}[i%2]
	part := func(shift float64) uint8 {
		k := math.Mod(shift+h, 6)
		return uint8(math.Round(255 * (value - value*0.85*math.Max(0, math.Min(math.Min(k, 4-k), 1)))))
	}
	return color.RGBA{part(5), part(3), part(1), 255}
}
