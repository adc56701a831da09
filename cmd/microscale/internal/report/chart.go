package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A panel is one chart of the page with its caption.
type panel struct {
	title         string // quantity and unit
	note          string
	plot          *plot.Plot
	width, height vg.Length
}

// Placeholder colors of charts. The page's style sheet maps each to a color for light and for
// dark mode.
var (
	ink   = color.RGBA{1, 0, 0, 255} // text
	faint = color.RGBA{2, 0, 0, 255} // grid
	axis  = color.RGBA{3, 0, 0, 255} // axes and the zero line
	shade = color.RGBA{4, 0, 0, 255} // range of the noise
)

// series returns the color of recipe i.
func series(i int) color.Color { return color.RGBA{16, uint8(i % hues), 0, 255} }

// hues is the number of recipe colors in the style sheet. It is at most 10, so that each has
// one digit. Curves beyond them are dashed.
const hues = 10

var standIn = regexp.MustCompile(`#(0[1-4]00|100[0-9])00\b`)

// inCSS replaces placeholder colors by variables of the style sheet.
func inCSS(svg []byte) []byte {
	return standIn.ReplaceAllFunc(svg, func(c []byte) []byte {
		switch c[2] {
		case '1':
			return []byte("var(--ink)")
		case '2':
			return []byte("var(--grid)")
		case '3':
			return []byte("var(--axis)")
		case '4':
			return []byte("var(--shade)")
		}
		return []byte("var(--c" + string(c[4:5]) + ")")
	})
}

// Size of a chart, in SVG units: pixels at full width.
const (
	chartWidth  = 400
	wideChart   = 500 // a chart alone; its text is still legible on a phone
	chartHeight = 235
	fontSize    = 11.5
)

// gridLines selects the grid lines of a plot.
type gridLines uint8

const (
	noGrid gridLines = iota
	horizontal
	vertical
)

// newPlot returns an empty plot in the style of the page, without a frame.
func newPlot(xLabel string, lines gridLines) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text = xLabel
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = fontSize, fontSize
		a.Label.TextStyle.Color, a.Tick.Label.Color = ink, ink
		a.Tick.LineStyle.Width, a.Tick.Length, a.Padding = 0, 4, 2
		a.LineStyle.Color, a.LineStyle.Width = axis, 1
		a.Tick.Marker = plot.TickerFunc(roundTicks)
	}
	p.Y.LineStyle.Width = 0
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = nil, nil
	switch lines {
	case horizontal:
		grid.Horizontal.Color, grid.Horizontal.Width = faint, 1
	case vertical:
		grid.Vertical.Color, grid.Vertical.Width = faint, 1
	}
	p.Add(grid)
	return p
}

// roundTicks returns about five ticks at round numbers.
func roundTicks(low, high float64) []plot.Tick {
	span := high - low
	if !(span > 0) || math.IsInf(span, 0) {
		return []plot.Tick{{Value: low, Label: shown(low, show.ThreeDigits)}}
	}
	power := math.Floor(math.Log10(span / 5))
	step := math.Pow(10, power)
	for _, factor := range []float64{2, 5, 10} {
		if span/step > 6 {
			step = factor * math.Pow(10, power)
		}
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	var ticks []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*span; i++ {
		value := i*step + 0 // not -0
		ticks = append(ticks, plot.Tick{Value: value, Label: show.Minus(fmt.Sprintf("%.*f", digits, value))})
	}
	return ticks
}

// percentTicks returns the ticks of roundTicks for shares, in percent.
func percentTicks(low, high float64) []plot.Tick {
	ticks := roundTicks(100*low, 100*high)
	for i := range ticks {
		ticks[i].Value /= 100
		ticks[i].Label += "%"
	}
	return ticks
}

// lineStyle returns the style of the line of series i.
func lineStyle(i int) draw.LineStyle {
	style := draw.LineStyle{Color: series(i), Width: lineWidth}
	if i >= hues {
		style.Dashes = []vg.Length{5, 3}
	}
	return style
}

// addLine adds a line in the color of series i. Non-finite values leave gaps.
func addLine(p *plot.Plot, i int, points plotter.XYs) error {
	for _, run := range finiteRuns(points) {
		if len(run) == 1 {
			if err := addMarks(p, i, run, draw.CircleGlyph{}); err != nil {
				return err
			}
			continue
		}
		l, err := plotter.NewLine(run)
		if err != nil {
			return err
		}
		l.LineStyle = lineStyle(i)
		p.Add(l)
	}
	return nil
}

// finiteRuns returns the runs of consecutive points with finite values.
func finiteRuns(points plotter.XYs) []plotter.XYs {
	var runs []plotter.XYs
	start := 0
	for i := 0; i <= len(points); i++ {
		if i < len(points) && !math.IsNaN(points[i].Y) && !math.IsInf(points[i].Y, 0) {
			continue
		}
		if start < i {
			runs = append(runs, points[start:i])
		}
		start = i + 1
	}
	return runs
}

// addMarked adds a line with marks in the color of series i.
func addMarked(p *plot.Plot, i int, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	if err := addLine(p, i, xys); err != nil {
		return err
	}
	return addMarks(p, i, xys, draw.CircleGlyph{})
}

// addMarks adds marks in the color of series i.
func addMarks(p *plot.Plot, i int, xys plotter.XYs, shape draw.GlyphDrawer) error {
	if len(xys) == 0 {
		return nil
	}
	marks, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: series(i), Radius: lineWidth + 1, Shape: shape}
	p.Add(marks)
	return nil
}

// addLevel adds a horizontal line across the plot.
func addLevel(p *plot.Plot, y float64) {
	f := plotter.NewFunction(func(float64) float64 { return y })
	f.Samples, f.Color, f.Width = 2, axis, 1
	p.Add(f)
	p.Y.Min, p.Y.Max = min(p.Y.Min, y), max(p.Y.Max, y)
}

// addBand shades the range from -y to y.
func addBand(p *plot.Plot, y float64) error {
	band, err := plotter.NewPolygon(plotter.XYs{{X: p.X.Min, Y: -y}, {X: p.X.Max, Y: -y}, {X: p.X.Max, Y: y}, {X: p.X.Min, Y: y}})
	if err != nil {
		return err
	}
	band.Color, band.LineStyle.Width = shade, 0
	p.Add(band)
	return nil
}

// widen adds a margin at both ends of an axis.
func widen(a *plot.Axis) {
	margin := 0.04 * (a.Max - a.Min)
	a.Min, a.Max = a.Min-margin, a.Max+margin
}

var (
	prelude = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	fonts   = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;(font-weight:[^;"]*;)?(font-style:[^;"]*;)?`)
)

// empty reports whether the plot has no data.
func (p *panel) empty() bool { return math.IsInf(p.plot.Y.Min, 0) || math.IsInf(p.plot.X.Min, 0) }

// svg draws the plot. Its title serves screen readers too.
func (p *panel) svg() (template.HTML, error) {
	canvas := vgsvg.New(p.width, p.height)
	p.plot.Draw(draw.Crop(draw.New(canvas), 0, -8, 0, -6)) // the last label is centered at the edge
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("chart %q: %w", p.title, err)
	}
	svg := inCSS(fonts.ReplaceAll(b.Bytes(), nil))
	head := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, p.width.Points(), p.height.Points(),
		template.HTMLEscapeString(p.title))
	return template.HTML(prelude.ReplaceAllLiteral(svg, []byte(head))), nil
}
