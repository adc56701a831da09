package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/safetensors"
)

// CheckMemory returns an error if the weights of a checkpoint, as Read holds them with
// LoadOptions.Inference, take more than the available bytes of memory.
func CheckMemory(source *hf.Checkpoint, available int64) error {
	need := int64(0)
	for _, w := range checkpoint.Read(source).Weights {
		need += heldBytes(w)
	}
	if need > available {
		return fmt.Errorf("the weights take %s of memory, but %s are available: quantize the model, or use a smaller one", memory.Text(float64(need)), memory.Text(float64(available)))
	}
	return nil
}

// heldBytes returns the memory of a weight: quantized ones and BF16 stay as they are stored, all other
// types become F32.
func heldBytes(w *checkpoint.Weight) int64 {
	rows, cols := w.Matrix()
	switch {
	case w.Quantized():
		return int64(w.Format.Bytes(rows, cols))
	case w.Dtype == safetensors.BF16:
		return 2 * int64(rows) * int64(cols)
	}
	return 4 * int64(rows) * int64(cols)
}
