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
// included.
func (s sweep) chart() ([]byte, error) {
	const width, height = 11 * vg.Inch, 5.5 * vg.Inch
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{Rows: 1, Cols: len(baselines), PadX: vg.Points(18), PadTop: vg.Points(10), PadBottom: vg.Points(10), PadLeft: vg.Points(10), PadRight: vg.Points(10)}
	panels := make([]*plot.Plot, len(baselines))
	for k := range panels {
		p, err := s.panel(k)
		if err != nil {
			return nil, err
		}
		panels[k] = p
	}
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	for k, c := range plot.Align([][]*plot.Plot{panels}, tiles, all)[0] {
		panels[k].Draw(c)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// panel returns the plot of the speeds relative to one baseline.
func (s sweep) panel(baseline int) (*plot.Plot, error) {
	p := plot.New()
	name := s.formats[baseline].Name
	p.Title.Text = "Product of square matrices, speed relative to " + name
	p.X.Label.Text = "size"
	p.Y.Label.Text = "times as fast as " + name
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizeTicks(s.sizes)
	p.X.Min, p.X.Max = float64(s.sizes[0]), float64(s.sizes[len(s.sizes)-1])*1.0001 // a single size is a range too
	p.Y.Min = 0
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		style.Variant = "Sans"
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(8), vg.Points(2)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	one := plotter.NewFunction(func(float64) float64 { return 1 })
	one.Color, one.Width = color.Gray{120}, vg.Points(1)
	p.Add(one)
	for j := len(baselines); j < len(s.formats); j++ {
		for _, quantizing := range []bool{false, true} {
			line, err := plotter.NewLine(s.line(j, baseline, quantizing))
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = hue(j-len(baselines), len(s.formats)-len(baselines)), vg.Points(1.6)
			if quantizing {
				line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
			} else if baseline == 0 { // one legend serves all panels
				p.Legend.Add(s.formats[j].Name, line)
			}
			p.Add(line)
			p.Y.Max = math.Max(p.Y.Max, 1)
		}
	}
	if baseline > 0 {
		return p, nil
	}
	dashed := &plotter.Line{LineStyle: draw.LineStyle{Color: color.Gray{90}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}}
	p.Legend.Add("with quantizing one of the two", dashed)
	return p, nil
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
