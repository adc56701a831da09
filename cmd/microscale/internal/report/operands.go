package report

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
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
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: show.Minus(fmt.Sprint(int(t.Value)))})
		}
	}
	return ticks
}
