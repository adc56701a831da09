package training

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A watcher measures operands as they are quantized.
type watcher struct {
	recipe    recipe.Recipe
	quantizes bool // at least one operand; others are not observed then
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
	const block = 32 // of measure, for all formats
	sums := measure.New(block)
	w.comparer.Tile(sums, w.source(o), q)
	r := sums.Result()
	w.operands[o.Operand] = append(w.operands[o.Operand], report.Operand{
		Step: step, Module: moduleLabel(o.Module), Name: operandLabel(o.Operand), Direction: o.Direction.String(),
		SQNR: r.SQNR, Amax: float64(q.Amax), Elements: r.Elements, Saturated: r.Saturated, Flushed: r.Flushed,
	})
	if q.Format.Scaled() {
		w.countScales(o.Operand, q)
	}
}

// source returns the matrix that an operand was quantized from: its source, transposed
// for a columnwise operand, and transformed if the quantizer does so. The transform
// preserves sums of squares.
func (w *watcher) source(o nn.Observation) tensor.Dense {
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

// transforms reports whether the quantizer of an operand transforms it.
func (w *watcher) transforms(o nn.Observation) bool {
	if o.Operand > nn.Grad { // in attention
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

// rows returns the measurements by operand.
func (w *watcher) rows() (operands []report.Operand, scales []report.Histogram) {
	for _, o := range slices.Sorted(maps.Keys(w.operands)) {
		operands = append(operands, w.operands[o]...)
		if counts := w.scales[o]; counts != nil {
			scales = append(scales, report.Histogram{Name: operandLabel(o), Counts: counts})
		}
	}
	return operands, scales
}

// operandLabel returns the name of an operand in the report.
func operandLabel(o nn.Operand) string {
	if o == nn.Grad {
		return "gradient"
	}
	return o.String()
}

// moduleLabel shortens the name of a module to its layer and last part, such as
// "3.qkv_proj" for "model.layers.3.self_attn.qkv_proj".
func moduleLabel(name string) string {
	parts := strings.Split(strings.TrimPrefix(name, "model.layers."), ".")
	if len(parts) < 2 {
		return name
	}
	return parts[0] + "." + parts[len(parts)-1]
}
