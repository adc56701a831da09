package decoder

import (
	"errors"
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/safetensors"
)

// ErrMemory is the error of weights that take more memory than is available.
var ErrMemory = errors.New("the model does not fit in memory")

// checkMemory returns an error that matches ErrMemory if the weights of a checkpoint, as read holds
// them with LoadOptions.Inference, take more than the available bytes of memory.
func checkMemory(source *checkpoint.Model, available int64) error {
	need := int64(0)
	for _, w := range source.Weights {
		need += heldBytes(w)
	}
	if need > available {
		return fmt.Errorf("%w: the weights take %s, but %s are available: quantize the model, or use a smaller one", ErrMemory,
			memory.Text(float64(need)), memory.Text(float64(available)))
	}
	return nil
}

// HeldBytes returns the memory of the weights of a checkpoint as Read holds them with
// LoadOptions.Inference: of all layers together, and of the rest. A head of 4 bits or F32 that is tied
// to the embedding has separate memory.
func (p *Plan) HeldBytes(source *hf.Checkpoint) (layers, rest int64) {
	r := reader{model: checkpoint.Read(source)}
	for _, w := range r.model.Weights {
		switch held := heldBytes(w); {
		case strings.Contains(w.Name, ".layers."):
			layers += held
		case w.Name == r.stored(embeddingModule+".weight") && !w.HasRowsBF16():
			if keepsTable(w) {
				rest += held
			} else {
				rest += 4 * int64(p.Vocabulary) * int64(p.Hidden)
			}
			if p.Tied && !(w.Quantized() && keepsTable(w) && sharesTable(w.Format)) {
				rest += held
			}
		default:
			rest += held
		}
	}
	return layers, rest
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
