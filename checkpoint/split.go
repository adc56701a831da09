package checkpoint

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A view is a weight that consists of rows of another weight, every step-th from first on, or of its
// columns.
type view struct {
	of      *Weight
	first   int
	step    int
	columns bool
}

// tile returns the tile of the other weight that covers a tile of the view.
func (v *view) tile(t Tile) Tile {
	from, to := &t.From, &t.To
	if v.columns {
		from, to = &t.FromCol, &t.ToCol
	}
	*to = v.first + (*to-1)*v.step + 1
	*from = v.first + *from*v.step
	return t
}

// read reads a tile of a view.
func (v *view) read(t Tile) (tensor.Dense, error) {
	whole, err := v.of.ReadTile(v.tile(t))
	if err != nil || v.step == 1 {
		return whole, err
	}
	x := tensor.New(t.To-t.From, t.ToCol-t.FromCol)
	for i := range x.Rows {
		if !v.columns {
			copy(x.Row(i), whole.Row(i*v.step))
			continue
		}
		for j := range x.Cols {
			x.Row(i)[j] = whole.Row(i)[j*v.step]
		}
	}
	return x, nil
}

// readInto reads a tile of a view of the rows of a quantized weight, whose blocks lie within rows.
func (v *view) readInto(q *quant.Tensor, t Tile) error {
	if v.step == 1 {
		return v.of.ReadInto(q, v.tile(t))
	}
	t = v.tile(t)
	whole, err := v.of.ReadCodes(t)
	if err != nil {
		return err
	}
	q.Global = whole.Global
	everyRow(q.Codes, whole.Codes, q.Rows(), whole.Rows(), v.step)
	everyRow(q.Scales, whole.Scales, q.Rows(), whole.Rows(), v.step)
	everyRow(q.Scales32, whole.Scales32, q.Rows(), whole.Rows(), v.step)
	return nil
}

// everyRow sets the rows of dst to every step-th row of src.
func everyRow[T any](dst, src []T, rows, of, step int) {
	n := len(src) / of
	for i := range rows {
		copy(dst[i*n:(i+1)*n], src[i*step*n:])
	}
}

// Split returns the experts of a weight with all experts of a layer as weights of linear modules,
// X.experts.0.gate_proj.weight and so on; nil if the layout is unknown, or if the weight has blocks of
// several rows. It does not split biases.
func (w *Weight) Split() []*Weight {
	if !w.ExpertsKnown() || !w.Dense() || w.Quantized() && (w.Format.Block.Rows != 1 || w.Format.Block.Cols == 0) {
		return nil
	}
	out, in, n := int(w.Shape[1]), w.Shape[2], len(w.stack.Parts)
	if out%n != 0 {
		return nil
	}
	var split []*Weight
	for e := range int(w.Shape[0]) {
		for i, module := range w.ExpertModule(e) {
			part := w.part(module+weightSuffix, int64(out/n), in)
			part.view = &view{of: w, first: e*out + i*(out/n), step: 1}
			if w.stack.Interleaved {
				part.view.first, part.view.step = e*out+i, n
			}
			split = append(split, part)
		}
	}
	return split
}

// ExpertModule returns the modules that Split gives one expert of a weight with all experts of a layer; nil for
// another weight, or if its layout is unknown.
func (w *Weight) ExpertModule(expert int) (modules []string) {
	if !w.ExpertsKnown() {
		return nil
	}
	for _, part := range w.stack.Parts {
		modules = append(modules, fmt.Sprintf("%s.%d.%s", w.stack.Module, expert, part))
	}
	return modules
}

// part returns a copy of a weight with another name and shape, and without experts.
func (w *Weight) part(name string, shape ...int64) *Weight {
	part := *w
	part.Name, part.Shape, part.stack, part.guess = name, shape, nil, w.ExpertsGuess()
	return &part
}

// gateUpBias ends the name of the biases of gate and up of all experts of a layer.
const gateUpBias = ".experts." + family.GateUpExperts + "_bias"

// Stacked returns the tensors that files with a tensor each for gate, up and down of all experts of a
// layer have in place of a weight: the matrices of each expert (Split), the biases of gate and of up,
// or the weight itself.
func (m *Model) Stacked(w *Weight) []*Weight {
	if split := w.Split(); split != nil {
		return split
	}
	row := m.Family().StackRow()
	parent, fused := strings.CutSuffix(w.Name, gateUpBias)
	if !fused || row == nil || len(w.Shape) != 2 {
		return []*Weight{w}
	}
	half := int(w.Shape[1]) / 2
	gate, up := w.part(parent+".experts.gate_proj_bias", w.Shape[0], int64(half)), w.part(parent+".experts.up_proj_bias", w.Shape[0],
		int64(half))
	gate.view, up.view = &view{w, 0, 1, true}, &view{w, half, 1, true}
	if row.Interleaved {
		gate.view, up.view = &view{w, 0, 2, true}, &view{w, 1, 2, true}
	}
	return []*Weight{gate, up}
}
