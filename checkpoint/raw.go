package checkpoint

import (
	"slices"

	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// ReadBF16 returns a tile of an unquantized BF16 weight as the file has it, in
// room as far as that is large enough; ok is false for every other weight, and
// where its rows are not such of the file.
func (w *Weight) ReadBF16(t Tile, room []byte) (x tensor.BF16, ok bool, err error) {
	switch v := w.view; {
	case w.Quantized() || w.Dtype != safetensors.BF16 || w.Transposed():
		return tensor.BF16{}, false, nil
	case v != nil && v.step == 1:
		return v.of.ReadBF16(v.tile(t), room)
	case v != nil:
		return tensor.BF16{}, false, nil
	}
	_, cols := w.Matrix()
	rows, width := t.To-t.From, t.ToCol-t.FromCol
	n := 2 * rows * width
	room = slices.Grow(room[:0], n)[:n]
	for s := range DenseSpans(cols, t) {
		if err := readAt(*w.parts[Codes], room[2*s.From:2*s.To], 2*s.At); err != nil {
			return tensor.BF16{}, true, err
		}
	}
	return tensor.OfBF16(rows, width, room), true, nil
}
