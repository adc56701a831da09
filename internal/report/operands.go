package report

import (
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// operandNames returns the operands of all recipes, in order of first appearance.
func (c *Comparison) operandNames() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range c.Recipes {
		for j := range c.Recipes[i].Operands {
			add(c.Recipes[i].Operands[j].Name)
		}
		for _, h := range c.Recipes[i].Scales {
			add(h.Name)
		}
	}
	return names
}

// A heatMap is the SQNR of one operand of a recipe: columns are the observed steps, rows the
// modules, the first at the top. It shows the lower SQNR of the two directions.
type heatMap struct {
	steps   []int
	modules []string
	sqnr    [][]float64 // by module and step; NaN if not observed
}

// Dims returns the number of columns and rows, for plotter.HeatMap.
func (m *heatMap) Dims() (columns, rows int) { return len(m.steps), len(m.modules) }

// X returns the coordinate of a column.
func (m *heatMap) X(c int) float64 { return float64(c) }

// Y returns the coordinate of a row; rows count from the bottom.
func (m *heatMap) Y(r int) float64 { return float64(r) }

// Z returns the SQNR of a cell.
func (m *heatMap) Z(c, r int) float64 { return m.sqnr[len(m.modules)-1-r][c] }

// heat returns the map of one operand of r, for the modules in which it is lossy. Modules are
// in the same order for every operand.
func heat(r *Recipe, operand string) *heatMap {
	m := &heatMap{}
	at := map[int]map[string]float64{} // by step and module
	lossy := map[string]bool{}
	for i := range r.Operands {
		o := &r.Operands[i]
		if !slices.Contains(m.modules, o.Module) {
			m.modules = append(m.modules, o.Module)
		}
		if o.Name != operand || math.IsInf(o.SQNR, 0) || math.IsNaN(o.SQNR) {
			continue
		}
		lossy[o.Module] = true
		if at[o.Step] == nil {
			at[o.Step] = map[string]float64{}
		}
		if v, ok := at[o.Step][o.Module]; !ok || o.SQNR < v {
			at[o.Step][o.Module] = o.SQNR
		}
	}
	m.modules = slices.DeleteFunc(m.modules, func(name string) bool { return !lossy[name] })
	slices.SortStableFunc(m.modules, compareModules)
	m.steps = slices.Sorted(maps.Keys(at))
	for _, name := range m.modules {
		var row []float64
		for _, step := range m.steps {
			v, ok := at[step][name]
			if !ok {
				v = math.NaN()
			}
			row = append(row, v)
		}
		m.sqnr = append(m.sqnr, row)
	}
	return m
}

// compareModules compares names with numbers by value: layer 2 before layer 10.
func compareModules(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		if errM == nil && errN == nil && m != n {
			return m - n
		}
		if x[i] != y[i] && (errM != nil || errN != nil) {
			break
		}
	}
	return 0
}

// heatStep is the distance of the marks on the SQNR color scale, in dB. The ends of the scale
// are marks.
const heatStep = 5

// heatPanels returns the maps of all recipes, by recipe and operand, and the range of the
// color scale that they share.
func (c *Comparison) heatPanels() (groups []heatGroup, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i := range c.Recipes {
		g := heatGroup{recipe: i}
		for _, name := range c.operandNames() {
			m := heat(&c.Recipes[i], name)
			if len(m.modules) == 0 {
				continue
			}
			for _, row := range m.sqnr {
				for _, v := range row {
					if !math.IsNaN(v) {
						low, high = min(low, v), max(high, v)
					}
				}
			}
			g.operands, g.maps = append(g.operands, name), append(g.maps, m)
		}
		if len(g.maps) > 0 {
			groups = append(groups, g)
		}
	}
	low, high = heatStep*math.Floor(low/heatStep), heatStep*math.Ceil(high/heatStep)
	if high == low {
		high += heatStep
	}
	for i := range groups {
		g := &groups[i]
		for j, m := range g.maps {
			title := fmt.Sprintf("%s: SQNR of the %s", c.Recipes[g.recipe].Name, g.operands[j])
			g.panels = append(g.panels, m.panel(title, low, high))
		}
	}
	return groups, low, high
}

// A heatGroup holds the maps of one recipe.
type heatGroup struct {
	recipe   int
	operands []string
	maps     []*heatMap
	panels   []panel
}

// panel draws a map.
func (m *heatMap) panel(title string, low, high float64) panel {
	const row, margin = 11, 48
	p := newPlot("step", noGrid)
	cells := plotter.NewHeatMap(m, ramp(64))
	cells.Min, cells.Max, cells.NaN = low, high, color.Transparent
	p.Add(cells)
	p.X.Tick.Marker = plot.ConstantTicks(m.stepTicks())
	p.Y.Tick.Marker = plot.ConstantTicks(m.moduleTicks())
	p.Y.Tick.Label.Font.Size = row - 1
	p.X.LineStyle.Width = 0
	return panel{title: title, plot: p, width: 330, height: vg.Length(row*len(m.modules) + margin)}
}

// stepTicks returns the first step, the last one, and a few between them.
func (m *heatMap) stepTicks() []plot.Tick {
	const most = 6
	every := max(1, (len(m.steps)+most-1)/most)
	var ticks []plot.Tick
	for i := 0; i < len(m.steps); i += every {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: fmt.Sprint(m.steps[i])})
	}
	return ticks
}

func (m *heatMap) moduleTicks() []plot.Tick {
	var ticks []plot.Tick
	for i, name := range m.modules {
		ticks = append(ticks, plot.Tick{Value: float64(len(m.modules) - 1 - i), Label: name})
	}
	return ticks
}

// A ramp is a color scale from dark blue through green to yellow. Its lightness increases
// throughout, so it is readable without hue.
type ramp int

var rampStops = []color.RGBA{{48, 18, 82, 255}, {58, 74, 138, 255}, {34, 125, 142, 255}, {50, 170, 120, 255}, {150, 210, 70, 255}, {250, 230, 50, 255}}

// Colors returns the colors of the ramp.
func (n ramp) Colors() []color.Color {
	list := make([]color.Color, n)
	for i := range list {
		list[i] = rampColor(float64(i) / float64(n-1))
	}
	return list
}

// rampColor returns the color at x, from 0 to 1.
func rampColor(x float64) color.RGBA {
	at := min(max(x, 0), 1) * float64(len(rampStops)-1)
	i := min(int(at), len(rampStops)-2)
	a, b, f := rampStops[i], rampStops[i+1], at-float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-f) + float64(b)*f)) }
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// histograms returns charts of the amax of tensors and of the scales of blocks: a panel for
// each operand, a line for each recipe.
func (c *Comparison) histograms() (amax, scales []panel, err error) {
	for _, name := range c.operandNames() {
		a, err := c.histogram("amax of the "+name, func(r *Recipe) map[int]int64 {
			counts := map[int]int64{}
			for i := range r.Operands {
				if o := &r.Operands[i]; o.Name == name && o.Amax > 0 && !math.IsInf(o.Amax, 0) {
					counts[math.Ilogb(o.Amax)]++
				}
			}
			return counts
		})
		if err != nil {
			return nil, nil, err
		}
		s, err := c.histogram("decode scales of the "+name, func(r *Recipe) map[int]int64 {
			for _, h := range r.Scales {
				if h.Name == name {
					return h.Counts
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		amax, scales = append(amax, a), append(scales, s)
	}
	return amax, scales, nil
}

// histogram returns a step chart of shares by binary exponent.
func (c *Comparison) histogram(title string, counts func(*Recipe) map[int]int64) (panel, error) {
	p := newPlot("binary exponent", horizontal)
	p.Y.Tick.Marker = plot.TickerFunc(percentTicks)
	p.X.Tick.Marker = plot.TickerFunc(wholeTicks)
	for i := range c.Recipes {
		steps := outline(counts(&c.Recipes[i]))
		if len(steps) == 0 {
			continue
		}
		l, err := plotter.NewLine(steps)
		if err != nil {
			return panel{}, err
		}
		l.LineStyle = draw.LineStyle{Color: series(i), Width: lineWidth}
		p.Add(l)
	}
	return panel{title: title, plot: p, width: 330, height: 220}, nil
}

// tail is the share cut off at either end of a histogram. Otherwise the scales of a few blocks
// of zeros would take most of its width.
const tail = 0.001

// outline returns the outline of the bars of a histogram, as shares of the total. A bar
// extends half an exponent to both sides.
func outline(counts map[int]int64) plotter.XYs {
	var all int64
	for _, n := range counts {
		all += n
	}
	exponents := slices.Sorted(maps.Keys(counts))
	beyond := func(end []int) int {
		var n int64
		for i, e := range end {
			if n += counts[e]; float64(n) > tail*float64(all) {
				return i
			}
		}
		return len(end)
	}
	exponents = exponents[beyond(exponents):]
	slices.Reverse(exponents)
	exponents = exponents[beyond(exponents):]
	if len(exponents) == 0 {
		return nil
	}
	first, last := exponents[len(exponents)-1], exponents[0]
	xys := plotter.XYs{{X: float64(first) - 0.5, Y: 0}}
	for e := first; e <= last; e++ {
		share := float64(counts[e]) / float64(all)
		xys = append(xys, plotter.XY{X: float64(e) - 0.5, Y: share}, plotter.XY{X: float64(e) + 0.5, Y: share})
	}
	return append(xys, plotter.XY{X: float64(last) + 0.5, Y: 0})
}

// wholeTicks returns the ticks of roundTicks that are integers.
func wholeTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for _, t := range roundTicks(low, high) {
		if t.Value == math.Trunc(t.Value) {
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: minus(fmt.Sprint(int(t.Value)))})
		}
	}
	return ticks
}
