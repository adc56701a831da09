package study

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/report"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A watcher measures operands as they are quantized.
type watcher struct {
	recipe    recipe.Recipe
	quantizes bool // anything: where it does, what stays as it is does not count
	comparer  checkpoint.Comparer
	operands  map[nn.Operand][]report.Operand
	scales    map[nn.Operand]map[int]int64
}

func newWatcher(r recipe.Recipe) *watcher {
	w := &watcher{recipe: r, operands: map[nn.Operand][]report.Operand{}, scales: map[nn.Operand]map[int]int64{}}
	for _, o := range []recipe.Operand{r.Input, r.Weight, r.Grad} {
		w.quantizes = w.quantizes || o.Rowwise.Format.Scaled() || o.Columnwise.Format.Scaled()
	}
	return w
}

// observe measures one operand.
func (w *watcher) observe(step int, o nn.Observation) {
	q := o.Quantized
	if w.quantizes && !q.Format.Scaled() {
		return
	}
	const block = 32 // measure's blocks: the same for all formats
	sums := measure.New(block)
	w.comparer.Tile(sums, w.lines(o), q)
	r := sums.Result()
	w.operands[o.Operand] = append(w.operands[o.Operand], report.Operand{
		Step: step, Module: moduleLabel(o.Module), Name: operandLabel(o.Operand), Direction: o.Direction.String(),
		SQNR: r.SQNR, Amax: float64(q.Amax), Elements: r.Elements, Saturated: r.Saturated, Flushed: r.Flushed,
	})
	if q.Format.Scaled() {
		w.countScales(o.Operand, q)
	}
}

// lines returns what the lines of a quantized operand were made of: the rows of
// its source or its columns, transformed where the quantizer does that. The
// transform changes no sum of squares.
func (w *watcher) lines(o nn.Observation) tensor.Dense {
	x := o.Source
	if o.Direction == quant.Columnwise {
		x = x.Transpose()
	}
	if !w.transforms(o) {
		return x
	}
	x = x.Clone()
	for i := range x.Rows {
		const n = 16
		for row := x.Row(i); len(row) >= n; row = row[n:] {
			quant.Hadamard16(row[:n])
		}
	}
	return x
}

// transforms reports whether an operand was transformed before it was quantized.
func (w *watcher) transforms(o nn.Observation) bool {
	if o.Operand > nn.Grad { // of attention
		return false
	}
	operand := [...]recipe.Operand{nn.Input: w.recipe.Input, nn.Weight: w.recipe.Weight, nn.Grad: w.recipe.Grad}[o.Operand]
	q := operand.Rowwise
	if o.Direction == quant.Columnwise {
		q = operand.Columnwise
	}
	return q.Hadamard && q.Format.Name == o.Quantized.Format.Name
}

// countScales counts the decode scales of an operand by their exponents.
func (w *watcher) countScales(operand nn.Operand, q *quant.Tensor) {
	counts := w.scales[operand]
	if counts == nil {
		counts = map[int]int64{}
		w.scales[operand] = counts
	}
	rows, cols := q.ScaleShape()
	height, width := max(q.Format.Block.Rows, 1), max(q.Format.Block.Cols, 1)
	for i := range rows {
		for j := range cols {
			if s := float64(q.Scale(i*height, j*width)); s > 0 && !math.IsInf(s, 0) {
				counts[math.Ilogb(s)]++
			}
		}
	}
}

// rows returns what was measured, by operand.
func (w *watcher) rows() (operands []report.Operand, scales []report.Histogram) {
	for _, o := range slices.Sorted(maps.Keys(w.operands)) {
		operands = append(operands, w.operands[o]...)
		if counts := w.scales[o]; counts != nil {
			scales = append(scales, report.Histogram{Name: operandLabel(o), Counts: counts})
		}
	}
	return operands, scales
}

// operandLabel names an operand as the report does.
func operandLabel(o nn.Operand) string {
	if o == nn.Grad {
		return "gradient"
	}
	return o.String()
}

// moduleLabel shortens the name of a module to its layer and its last part:
// "3.qkv_proj" for "model.layers.3.self_attn.qkv_proj".
func moduleLabel(name string) string {
	parts := strings.Split(strings.TrimPrefix(name, "model.layers."), ".")
	if len(parts) < 2 {
		return name
	}
	return parts[0] + "." + parts[len(parts)-1]
}
