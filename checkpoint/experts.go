package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// Family returns the structure of the model.
func (m *Model) Family() *family.Model {
	if m.family == nil {
		m.family = family.New(m.Source.Config, func(yield func(string, []int64) bool) {
			for _, t := range m.Source.Tensors() {
				if !yield(t.Name, t.Shape) {
					return
				}
			}
		})
	}
	return m.family
}

// ExpertModules returns the modules by which clients look up whether the experts in a weight are
// quantized; nil for a weight without all experts of a layer. Clients have one module for all
// experts of a layer, and look it up by its own name (vLLM's and SGLang's modelopt and fp8) or by
// the names of the linear modules of its first expert (their compressed-tensors).
func (w *Weight) ExpertModules() []string {
	if w.stack == nil {
		return nil
	}
	modules := []string{w.stack.Module}
	if module, ok := strings.CutSuffix(w.Name, weightSuffix); ok {
		modules = append(modules, module)
	}
	for _, part := range w.stack.Parts {
		modules = append(modules, w.stack.Module+".0."+part)
	}
	return modules
}

// ExpertsUnlisted returns the weights with all experts of a layer that are neither quantized nor on the ignore
// list by any of their modules: clients would look for scales, or load nothing.
func (m *Model) ExpertsUnlisted() (weights []*Weight) {
	if m.Convention == nil || !m.Convention.hasIgnore || !m.configured {
		return nil
	}
	ignored := m.Convention.Ignored(m.Ignore)
	for _, w := range m.Weights {
		if modules := w.ExpertModules(); modules != nil && !w.Quantized() && !slices.ContainsFunc(modules, ignored) {
			weights = append(weights, w)
		}
	}
	return weights
}

// setStack finds whether a weight holds all experts of a layer. Its shape is that of the file if stored is
// true, else [experts, out, in].
func (m *Model) setStack(w *Weight, stored bool) {
	if w.stack = m.Family().StackOf(w.Name, w.Shape, stored); w.stack == nil {
		return
	}
	module, isWeight := strings.CutSuffix(w.Name, weightSuffix)
	bias := w.Name + "_bias"
	if isWeight {
		bias = module + ".bias"
	}
	if _, ok := m.Source.Lookup(bias); ok {
		w.stack.Biased = true
	}
}

// unquantized returns a tensor as a weight. Transposed experts get the shape of linear modules, which
// those of a GGUF file have already.
func (m *Model) unquantized(t *hf.Tensor) *Weight {
	w := &Weight{Name: t.Name, Shape: t.Shape, Dtype: t.Dtype, parts: parts{Codes: t}, untransposed: m.viewed != nil}
	m.setStack(w, !w.untransposed)
	if w.transposedFile() {
		w.Shape = swapped(t.Shape)
	}
	return w
}

// swapped returns a shape with its last two dimensions exchanged.
func swapped(shape []int64) []int64 {
	n := len(shape)
	return append(slices.Clone(shape[:n-2]), shape[n-1], shape[n-2])
}

// Transposed reports whether safetensors files of the model hold the values as [experts, in, out].
// Shape is always [experts, out, in].
func (w *Weight) Transposed() bool { return w.view == nil && w.ExpertsKnown() && w.stack.Transposed }

// transposedFile reports whether the file of the weight holds its values as [experts, in, out]. It is
// false for the codes of quantized weights.
func (w *Weight) transposedFile() bool { return w.Transposed() && !w.untransposed && !w.Quantized() }

// Rearranged reports whether the bytes of an unquantized weight differ from those that other files of the model
// have: it is a part of a tensor, its file is not transposed, or the file has codes in another tool's layout.
func (w *Weight) Rearranged() bool {
	return w.view != nil || w.Transposed() && w.untransposed || w.coded != nil
}

// ExpertsKnown reports whether the weight holds all experts of a layer in a known layout.
func (w *Weight) ExpertsKnown() bool { return w.stack != nil && w.stack.Unknown == "" }

// ExpertsBiased reports whether the experts in the weight have biases.
func (w *Weight) ExpertsBiased() bool { return w.stack != nil && w.stack.Biased }

// ExpertsGuess returns what the layout of the experts in the weight, or of those that it is a part of, rests
// on if neither shapes nor the family decide; "" if they do.
func (w *Weight) ExpertsGuess() string {
	if w.stack == nil {
		return w.guess
	}
	return w.stack.Guess
}

// RejectsExperts returns why the convention does not support a weight with all experts of a layer, or
// "".
func (c *Convention) RejectsExperts(w *Weight) string {
	switch {
	case w.stack == nil:
		return ""
	case w.stack.Unknown != "":
		return w.stack.Unknown
	case c.linearOnly && w.stack.Biased && !c.oneFile:
		return fmt.Sprintf("fused experts with biases: %s supports single experts without biases", c)
	case !c.linearOnly && w.stack.Transposed && !w.stack.Listed:
		return fmt.Sprintf("fused experts as [experts, in, out] of a family that is not known to have them so: %s stores [experts, out, in], "+
			"and dequantize would not restore the order", c)
	case c.biased && !w.stack.Biased:
		return fmt.Sprintf("fused experts without biases: clients read only experts of gpt-oss in %s", c)
	}
	return ""
}

// DenseSpec returns the tensor for the values of the weight in a dtype.
func (w *Weight) DenseSpec(dtype safetensors.Dtype) safetensors.Spec {
	shape := w.Shape
	if w.Transposed() {
		shape = swapped(shape)
	}
	return safetensors.Spec{Name: w.Name, Dtype: dtype, Shape: shape}
}

// A columnRun is a run of a transposed weight: rows of one expert in one column of a tile.
type columnRun struct {
	at       int64 // the first element in the file
	row, col int   // the first element in the tile
	rows     int
}

// columnRuns calls f with the runs of a tile of a transposed weight, in the order of the file.
func (w *Weight) columnRuns(t Tile, f func(columnRun) error) error {
	out, in := int(w.Shape[len(w.Shape)-2]), int(w.Shape[len(w.Shape)-1])
	for from := t.From; from < t.To; {
		expert, row := from/out, from%out
		rows := min(t.To-from, out-row)
		for c := t.FromCol; c < t.ToCol; c++ {
			at := int64(expert)*int64(in)*int64(out) + int64(c)*int64(out) + int64(row)
			if err := f(columnRun{at, from - t.From, c - t.FromCol, rows}); err != nil {
				return err
			}
		}
		from += rows
	}
	return nil
}

// readTransposed reads a tile of a transposed weight.
func (w *Weight) readTransposed(t Tile) (tensor.Dense, error) {
	x := tensor.New(t.To-t.From, t.ToCol-t.FromCol)
	dense, ok := w.Dtype.Dense()
	if !ok {
		return x, fmt.Errorf("%s: %s elements are not supported as values", w.Name, w.Dtype)
	}
	size := dense.Bits() / 8
	raw, column := make([]byte, x.Rows*size), make([]float32, x.Rows)
	return x, w.columnRuns(t, func(r columnRun) error {
		if err := readAt(*w.parts[Codes], raw[:r.rows*size], r.at*int64(size)); err != nil {
			return err
		}
		if err := tensor.FromBytes(column[:r.rows], raw[:r.rows*size], dense); err != nil {
			return err
		}
		for i, v := range column[:r.rows] {
			x.Data[(r.row+i)*x.Cols+r.col] = v
		}
		return nil
	})
}

// PutDense calls put with the bytes of the values of a tile in a format of Dtype.Dense, run by
// run, in the order of the file. at is an offset in bytes.
func (w *Weight) PutDense(t Tile, x tensor.Dense, f *format.Scalar, put func(raw []byte, at int64) error) error {
	size := f.Bits() / 8
	if !w.Transposed() {
		raw := make([]byte, len(x.Data)*size)
		if err := tensor.ToBytes(raw, x.Data, f); err != nil {
			return err
		}
		_, cols := w.Matrix()
		for s := range t.DenseSpans(cols) {
			if err := put(raw[s.From*size:s.To*size], s.At*int64(size)); err != nil {
				return err
			}
		}
		return nil
	}
	raw, column := make([]byte, x.Rows*size), make([]float32, x.Rows)
	return w.columnRuns(t, func(r columnRun) error {
		for i := range column[:r.rows] {
			column[i] = x.Data[(r.row+i)*x.Cols+r.col]
		}
		if err := tensor.ToBytes(raw[:r.rows*size], column[:r.rows], f); err != nil {
			return err
		}
		return put(raw[:r.rows*size], r.at*int64(size))
	})
}
