package train

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/quant"
)

// A footprint is the memory that a run takes at least, in bytes. Products of sizes
// may be beyond int64, so it is in float64.
type footprint struct {
	model       float64 // weights, gradients, and the moments of AdamW
	activations float64 // of a microbatch or of a validation, the larger of the two
}

// footprint predicts the memory of a run from its sizes: FP32 masters, gradients and
// two moments; what the modules other than linear layers save of a microbatch for the
// backward pass; logits.
// Quantized copies of the weights and temporary matrices come on top.
func (c *Config) footprint() footprint {
	m := c.Model.WithDefaults()
	hidden, intermediate, layers, vocabulary := float64(m.HiddenSize), float64(m.IntermediateSize), float64(m.NumHiddenLayers), float64(m.VocabSize)
	q, kv := float64(m.NumAttentionHeads)*float64(m.HeadDim), float64(m.NumKeyValueHeads)*float64(m.HeadDim)

	parameters := layers*(hidden*(2*q+2*kv)+3*hidden*intermediate+2*hidden) + hidden + 2*vocabulary*hidden
	// Bits of a token in a layer: inputs of norms and of SwiGLU, and Q, K and V.
	bits := float64(c.Recipe.Activations.Element.StoredBits())
	if c.Recipe.StoreQuantized {
		bits = float64(quant.MXFP8.Element.StoredBits())
	}
	attention := bits
	if c.Recipe.Attention.DotProduct {
		attention = min(bits, float64(c.Recipe.Input.Rowwise.Format.Element.StoredBits()))
	}
	kept := bits*(2*hidden+2*intermediate) + attention*(q+2*kv)
	if c.Options.Recompute {
		kept = bits * hidden
	}
	tokens := float64(c.Batch/max(c.Microbatches, 1)) * float64(c.Sequence)
	training := tokens*(layers*kept/8+4*vocabulary) + 8*float64(c.Batch)
	windows := min(evaluationBatch, max(c.ValidationTokens/max(c.Sequence, 1), 1))
	return footprint{model: 4 * 4 * parameters, activations: max(training, inferenceBytes(m, windows, c.Sequence))}
}

// inferenceBytes returns what a forward pass of a batch takes at least beside the
// weights: the residual stream and the logits, both FP32.
func inferenceBytes(m llama.Config, batch, sequence int) float64 {
	return 4 * float64(batch) * float64(sequence) * (float64(m.HiddenSize) + float64(m.VocabSize))
}

// available is replaced in tests.
var available = memory.Available

// CheckMemory returns an error where the machine has less memory available than the
// run takes. It names the size to lower, as Validate does. Run calls it.
func (c *Config) CheckMemory() error {
	f, has := c.footprint(), available()
	if f.model+f.activations <= float64(has) {
		return nil
	}
	m, d := c.Model.WithDefaults(), DefaultConfig()
	type size struct {
		name           string
		value, initial int
	}
	sizes := []size{
		{"hidden", m.HiddenSize, d.Model.HiddenSize}, {"intermediate", m.IntermediateSize, d.Model.IntermediateSize}, {"layers", m.NumHiddenLayers, d.Model.NumHiddenLayers},
	}
	if f.activations > f.model {
		sizes = append(sizes, size{"batch", c.Batch, d.Batch * c.Microbatches}, size{"sequence", c.Sequence, d.Sequence})
	}
	lower := sizes[0]
	for _, s := range sizes[1:] {
		if float64(s.value)/float64(s.initial) > float64(lower.value)/float64(lower.initial) {
			lower = s
		}
	}
	return fmt.Errorf("%s is %d: the run needs at least %s of memory, %s for the model and %s for activations, and %s are available: lower %[1]s",
		lower.name, lower.value, memory.Text(f.model+f.activations), memory.Text(f.model), memory.Text(f.activations), memory.Text(float64(has)))
}
