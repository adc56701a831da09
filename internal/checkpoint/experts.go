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

// fusedExperts are the families that keep all experts of a layer in two tensors,
// X.experts.gate_up_proj and X.experts.down_proj. Of a family that is not here the
// layout is not guessed: [experts, in, out] and [experts, out, in] look the same
// where a model is as wide as its experts.
//
// Sources: the experts' classes of transformers (models/llama4, gpt_oss,
// qwen3_vl_moe, qwen3_5_moe), and the files of the published models.
var fusedExperts = []struct {
	modelTypes []string
	experts
}{
	{[]string{"llama4", "llama4_text"}, experts{transposed: true}},
	{[]string{"qwen3_vl_moe", "qwen3_vl_moe_text"}, experts{transposed: true}},
	{[]string{"qwen3_5_moe", "qwen3_5_moe_text"}, experts{}},
	{[]string{"gpt_oss"}, experts{transposed: true, interleaved: true, biased: true}},
}

// experts is how the experts of a layer lie in one tensor.
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

// ExpertModules returns the modules by which clients look up whether the experts
// that a weight holds are quantized; nil for a weight that does not hold all of a
// layer. Clients have one module for all experts of a layer, and ask for it by its
// own name (vLLM's and SGLang's modelopt and fp8) or by those of the linear modules
// of its first expert (their compressed-tensors).
func (w *Weight) ExpertModules() []string {
	if len(w.Shape) != 3 || !IsFused(w.Name) {
		return nil
	}
	if parent, ok := strings.CutSuffix(w.Name, ".gate_up_proj"); ok {
		return []string{parent, parent + ".0.gate_proj", parent + ".0.up_proj"}
	}
	return []string{strings.TrimSuffix(w.Name, ".down_proj") + ".0.down_proj"}
}

// expertsOf returns how the experts in a tensor lie, nil where it holds none or it
// is not known. The shape is that of the file where stored is true, else that of
// linear modules, [experts, out, in]. It must agree with the width of the model.
func (m *Model) expertsOf(name string, shape []int64, stored bool) *experts {
	if len(shape) != 3 || !IsFused(name) {
		return nil
	}
	whole, text := m.Source.ModelType()
	for _, row := range fusedExperts {
		if !slices.Contains(row.modelTypes, whole) && !slices.Contains(row.modelTypes, text) {
			continue
		}
		wide := 2 // the dimension that is as wide as the model
		if strings.HasSuffix(name, down) != (stored && row.transposed) {
			wide = 1
		}
		if hidden := m.Source.Integer("hidden_size"); hidden == 0 || shape[wide] != hidden {
			return nil
		}
		e := row.experts
		return &e
	}
	return nil
}

// unquantized returns a tensor as a weight: experts that are transposed in the
// file as linear modules have them.
func (m *Model) unquantized(t *hf.Tensor) *Weight {
	w := &Weight{Name: t.Name, Shape: t.Shape, Dtype: t.Dtype, parts: parts{Codes: t}}
	if w.experts = m.expertsOf(t.Name, t.Shape, true); w.experts != nil && w.experts.transposed {
		w.Shape = swapped(t.Shape)
	}
	return w
}

// swapped returns a shape whose last two dimensions have changed places.
func swapped(shape []int64) []int64 {
	n := len(shape)
	return append(slices.Clone(shape[:n-2]), shape[n-1], shape[n-2])
}

// Transposed reports whether the weight's values lie, or lay before quantization,
// in a file as [experts, in, out]. Shape is [experts, out, in] all the same.
func (w *Weight) Transposed() bool { return w.view == nil && w.experts != nil && w.experts.transposed }

// ExpertsKnown reports whether the weight holds all experts of a layer in a way that
// is known here.
func (w *Weight) ExpertsKnown() bool { return w.experts != nil }

// ExpertsBiased reports whether the experts that the weight holds have biases.
func (w *Weight) ExpertsBiased() bool { return w.experts != nil && w.experts.biased }

// RejectsExperts returns why the convention cannot hold a weight that has all experts of
// a layer as it is, or "": of such a weight, in which it is known how they lie.
func (c *Convention) RejectsExperts(w *Weight) string {
	switch {
	case w.experts == nil:
		return ""
	case c.linearOnly && w.experts.biased:
		return fmt.Sprintf("fused experts with biases: %s supports single experts without biases", c)
	case c.biased && !w.experts.biased:
		return fmt.Sprintf("fused experts without biases: clients read only experts of gpt-oss in %s", c)
	}
	return ""
}

// DenseSpec returns the tensor that holds the weight's values in a dtype.
func (w *Weight) DenseSpec(dtype safetensors.Dtype) safetensors.Spec {
	shape := w.Shape
	if w.Transposed() {
		shape = swapped(shape)
	}
	return safetensors.Spec{Name: w.Name, Dtype: dtype, Shape: shape}
}

// A run of a transposed weight: rows of one expert in one column of a tile.
type columnRun struct {
	at       int64 // the first element in the file
	row, col int   // the first element in the tile
	rows     int
}

// columnRuns calls f with the runs of a tile of a transposed weight, in the order
// of the file.
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
		return x, fmt.Errorf("%s: %s elements are not read as values", w.Name, w.Dtype)
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

// PutDense calls put with the bytes of a tile's values in a scalar format of
// DenseFormat, run by run as they lie in the file: at is in bytes.
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

// A view says which rows of another weight a weight is: every step-th from first on.
type view struct {
	of    *Weight
	first int
	step  int
}

// tile returns the tile of the other weight that covers one of the view.
func (v *view) tile(t Tile) Tile {
	t.To = v.first + (t.To-1)*v.step + 1
	t.From = v.first + t.From*v.step
	return t
}

// read reads a tile of a view.
func (v *view) read(t Tile) (tensor.Dense, error) {
	whole, err := v.of.ReadTile(v.tile(t))
	if err != nil || v.step == 1 {
		return whole, err
	}
	x := tensor.New(t.To-t.From, whole.Cols)
	for i := range x.Rows {
		copy(x.Row(i), whole.Row(i*v.step))
	}
	return x, nil
}

// Split returns the experts of a weight that holds all of a layer as the weights
// of linear modules, X.experts.0.gate_proj.weight and so on; nil where it is not
// known how they lie, or they have biases, which would have to be split too.
func (w *Weight) Split() []*Weight {
	if w.experts == nil || w.experts.biased || w.Quantized() || !w.Dense() {
		return nil
	}
	out, in := int(w.Shape[1]), w.Shape[2]
	type part struct {
		name        string
		first, step int
		rows        int
	}
	parts := []part{{"down_proj", 0, 1, out}}
	parent := strings.TrimSuffix(w.Name, ".down_proj")
	if fused, ok := strings.CutSuffix(w.Name, ".gate_up_proj"); ok {
		parent = fused
		parts = []part{{"gate_proj", 0, 1, out / 2}, {"up_proj", out / 2, 1, out / 2}}
		if w.experts.interleaved {
			parts = []part{{"gate_proj", 0, 2, out / 2}, {"up_proj", 1, 2, out / 2}}
		}
	}
	var split []*Weight
	for e := range int(w.Shape[0]) {
		for _, p := range parts {
			split = append(split, &Weight{
				Name:  fmt.Sprintf("%s.%d.%s%s", parent, e, p.name, weightSuffix),
				Shape: []int64{int64(p.rows), in}, Dtype: w.Dtype, parts: w.parts,
				view: &view{w, e*out + p.first, p.step},
			})
		}
	}
	return split
}

// IsView reports whether the weight is a part of a tensor: what Split made.
func (w *Weight) IsView() bool { return w.view != nil }
