package checkpoint

import (
	"slices"

	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// Raw returns the tensors of the files, each as a weight that is not quantized, for copies.
func (m *Model) Raw() []*Weight {
	tensors := m.Source.Tensors()
	weights := make([]*Weight, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		weights[i] = &Weight{Name: t.Name, Shape: t.Shape, Dtype: t.Dtype, parts: parts{Codes: t}}
	}
	return weights
}

// HasRowsBF16 reports whether the rows of the weight are contiguous BF16 values in its file: it
// is not quantized or decoded, transposed or interleaved with another weight. ReadBF16 reads such weights.
func (w *Weight) HasRowsBF16() bool {
	if w.hasCodes() || w.Dtype != safetensors.BF16 || w.transposedFile() {
		return false
	}
	return w.view == nil || w.view.step == 1 && !w.view.columns && w.view.of.HasRowsBF16()
}

// ReadBF16 returns a tile of a weight for which HasRowsBF16 is true. It uses buf if that is
// large enough. ok is false for other weights.
func (w *Weight) ReadBF16(t Tile, buf []byte) (x tensor.BF16, ok bool, err error) {
	if !w.HasRowsBF16() {
		return tensor.BF16{}, false, nil
	}
	if v := w.view; v != nil {
		return v.of.ReadBF16(v.tile(t), buf)
	}
	_, cols := w.Matrix()
	rows, width := t.To-t.From, t.ToCol-t.FromCol
	n := 2 * rows * width
	buf = slices.Grow(buf[:0], n)[:n]
	for s := range t.DenseSpans(cols) {
		if err := readAt(*w.parts[Codes], buf[2*s.From:2*s.To], 2*s.At); err != nil {
			return tensor.BF16{}, true, err
		}
	}
	return tensor.OfBF16(rows, width, buf), true, nil
}
