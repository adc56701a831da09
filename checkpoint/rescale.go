package checkpoint

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/quant"
)

// Rescaled returns the bytes of the tensors that hold the scales of a weight, by their names, for other block and global scales:
// those of t. It returns an error if the file does not hold block scales row by row.
func (w *Weight) Rescaled(t *quant.Tensor) (map[string][]byte, error) {
	scales := w.parts[Scales]
	if w.view != nil || w.swizzled || w.Joined || scales == nil || scales.Bytes() != int64(len(t.Scales)) || t.Format.Name != w.Format.Name {
		return nil, fmt.Errorf("%s: the file does not hold its block scales row by row: use another convention", w.Name)
	}
	parts := map[string][]byte{scales.Name: bytes.Clone(t.Scales)}
	if !w.Format.Global || t.Global == w.Global {
		return parts, nil
	}
	global := w.parts[Global]
	number := GlobalBytes(w.scheme.direction.stored(t.Global))
	if global == nil || global.Bytes() != int64(len(number)) {
		return nil, errors.New(w.Name + ": the file does not hold its global scale in F32: use another convention")
	}
	parts[global.Name] = number
	return parts, nil
}
