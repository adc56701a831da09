package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// fusedExperts are the families with all experts of a layer in two tensors,
// X.experts.gate_up_proj and X.experts.down_proj. The layout of other families is not guessed:
// [experts, in, out] and [experts, out, in] are indistinguishable if a model is as wide as its
// experts.
//
// Sources: the experts' classes of transformers (models/llama4, gpt_oss, qwen3_vl_moe,
// qwen3_5_moe), and the files of the published models.
var fusedExperts = []struct {
	modelTypes []string
	experts
}{
	{[]string{"llama4", "llama4_text"}, experts{transposed: true}},
	{[]string{"qwen3_vl_moe", "qwen3_vl_moe_text"}, experts{transposed: true}},
	{[]string{"qwen3_5_moe", "qwen3_5_moe_text"}, experts{}},
	{[]string{"gpt_oss"}, experts{transposed: true, interleaved: true, biased: true}},
}

// experts is the layout of the experts of a layer in one tensor.
type experts struct {
	transposed  bool // [experts, in, out], where linear modules are [out, in]
	interleaved bool // rows of gate and up alternate; else those of gate come first
	biased      bool // they have biases, which would have to be split along with them
}

// The names of fused experts.
const (
	gateUp = ".experts.gate_up_proj"
	down   = ".experts.down_proj"
)

// IsFused reports whether a name is that of fused experts.
func IsFused(name string) bool {
	return strings.HasSuffix(name, gateUp) || strings.HasSuffix(name, down)
}

// ExpertModules returns the modules by which clients look up whether the experts in a weight are
// quantized; nil for a weight without all experts of a layer. Clients have one module for all
// experts of a layer, and look it up by its own name (vLLM's and SGLang's modelopt and fp8) or by
// the names of the linear modules of its first expert (their compressed-tensors).
func (w *Weight) ExpertModules() []string {
	if len(w.Shape) != 3 || !IsFused(w.Name) {
		return nil
	}
	if parent, ok := strings.CutSuffix(w.Name, ".gate_up_proj"); ok {
		return []string{parent, parent + ".0.gate_proj", parent + ".0.up_proj"}
	}
	return []string{strings.TrimSuffix(w.Name, ".down_proj") + ".0.down_proj"}
}

// expertsOf returns the layout of the experts in a tensor; nil if it holds none or the layout is
// unknown. The shape is that of the file if stored is true, else [experts, out, in]. It must
// match the width of the model.
func (m *Model) expertsOf(name string, shape []int64, stored bool) *experts {
	if len(shape) != 3 || !IsFused(name) {
		return nil
	}
	e, wide := m.fusedExperts(), 2 // the dimension that is as wide as the model
	if e == nil {
		return nil
	}
	if strings.HasSuffix(name, down) != (stored && e.transposed) {
		wide = 1
	}
	if hidden := m.Source.Integer("hidden_size"); hidden == 0 || shape[wide] != hidden {
		return nil
	}
	return e
}

// fusedExperts returns the layout of fused experts in models of this type; nil if it is unknown.
func (m *Model) fusedExperts() *experts {
	whole, text := m.Source.ModelType()
	for _, row := range fusedExperts {
		if slices.Contains(row.modelTypes, whole) || slices.Contains(row.modelTypes, text) {
			return &row.experts
		}
	}
	return nil
}

// unquantized returns a tensor as a weight. Transposed experts get the shape of linear modules, which
// those of a GGUF file have already.
func (m *Model) unquantized(t *hf.Tensor) *Weight {
	w := &Weight{Name: t.Name, Shape: t.Shape, Dtype: t.Dtype, parts: parts{Codes: t}, untransposed: m.viewed != nil}
	w.experts = m.expertsOf(t.Name, t.Shape, !w.untransposed)
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
func (w *Weight) Transposed() bool { return w.view == nil && w.experts != nil && w.experts.transposed }

// transposedFile reports whether the file of the weight holds its values as [experts, in, out]. It is
// false for the codes of quantized weights.
func (w *Weight) transposedFile() bool { return w.Transposed() && !w.untransposed && !w.Quantized() }

// Rearranged reports whether the bytes of an unquantized weight differ in order from those that other
// files of the model have: it is a part of a tensor, or its file is not transposed.
func (w *Weight) Rearranged() bool { return w.view != nil || w.Transposed() && w.untransposed }

// ExpertsKnown reports whether the weight holds all experts of a layer in a known layout.
func (w *Weight) ExpertsKnown() bool { return w.experts != nil }

// ExpertsBiased reports whether the experts in the weight have biases.
func (w *Weight) ExpertsBiased() bool { return w.experts != nil && w.experts.biased }

// RejectsExperts returns why the convention does not support a weight with all experts of a layer
// in a known layout, or "".
func (c *Convention) RejectsExperts(w *Weight) string {
	switch {
	case w.experts == nil:
		return ""
	case c.linearOnly && w.experts.biased && !c.gguf:
		return fmt.Sprintf("fused experts with biases: %s supports single experts without biases", c)
	case c.biased && !w.experts.biased:
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
	dense, ok := DenseFormat(w.Dtype)
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

// PutDense calls put with the bytes of the values of a tile in a format of DenseFormat, run by
// run, in the order of the file. at is an offset in bytes.
func (w *Weight) PutDense(t Tile, x tensor.Dense, f *format.Scalar, put func(raw []byte, at int64) error) error {
	size := f.Bits() / 8
	if !w.Transposed() {
		raw := make([]byte, len(x.Data)*size)
		if err := tensor.ToBytes(raw, x.Data, f); err != nil {
			return err
		}
		_, cols := w.Matrix()
		for s := range DenseSpans(cols, t) {
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
