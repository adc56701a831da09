package report

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// endLabels draws texts beside points, none over another.
type endLabels struct {
	at     plotter.XYs
	texts  []string
	colors []color.Color
	size   vg.Length
	left   bool // texts end at their points
}

func (l *endLabels) add(at plotter.XY, text string, c color.Color) {
	l.at, l.texts, l.colors = append(l.at, at), append(l.texts, text), append(l.colors, c)
}

// Plot draws the texts.
func (l *endLabels) Plot(c draw.Canvas, p *plot.Plot) {
	const gap, leftGap = 5, 12
	x, y := p.Transforms(&c)
	style := p.X.Tick.Label
	style.Font.Size, style.XAlign, style.YAlign = l.size, draw.XLeft, draw.YCenter
	offset := vg.Length(gap)
	if l.left {
		style.XAlign, offset = draw.XRight, -leftGap // a browser's font can be wider
	}
	places := make([]vg.Length, len(l.at))
	for i, v := range l.at {
		places[i] = y(v.Y)
	}
	spread(places, l.size+1, c.Min.Y, c.Max.Y)
	for i, text := range l.texts {
		style.Color = l.colors[i]
		c.FillText(style, vg.Point{X: x(l.at[i].X) + offset, Y: places[i]}, text)
	}
}

// spread moves places apart until any two are at least the distance apart, and back into the
// range from low to high if they fit there.
func spread(places []vg.Length, distance, low, high vg.Length) {
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case places[a] < places[b]:
			return -1
		case places[a] > places[b]:
			return 1
		}
		return 0
	})
	below := low - distance
	for _, i := range order {
		places[i] = max(places[i], below+distance)
		below = places[i]
	}
	above := high + distance
	for _, i := range slices.Backward(order) {
		places[i] = min(places[i], above-distance)
		above = places[i]
	}
}
