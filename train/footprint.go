package train

import (
	"math/bits"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
)

// A footprint is the minimum memory of a run in bytes. It is float64 because products of sizes can
// exceed int64.
type footprint struct {
	model       float64 // weights, gradients, and the moments of AdamW
	activations float64 // of a microbatch or of a validation, whichever is larger
}

// footprint estimates the memory of a run from its sizes: FP32 master weights, gradients (one
// and those of earlier microbatches) and two moments; activations that modules other than linear
// layers save; logits. Quantized copies of the weights and temporary matrices are not included.
func (c *Config) footprint() footprint {
	m := c.Model.WithDefaults()
	hidden, intermediate, layers, vocabulary := float64(m.HiddenSize), float64(m.IntermediateSize), float64(m.NumHiddenLayers),
		float64(m.VocabSize)
	q, kv := float64(m.NumAttentionHeads)*float64(m.HeadDim), float64(m.NumKeyValueHeads)*float64(m.HeadDim)

	parameters := layers*(hidden*(2*q+2*kv)+3*hidden*intermediate+2*hidden) + hidden + 2*vocabulary*hidden
	// Bits per token and layer: inputs of norms and of SwiGLU, and Q, K and V.
	width := float64(c.Recipe.Activations.Element.StoredBits())
	if c.Recipe.StoreQuantized {
		width = float64(quant.MXFP8.Element.StoredBits())
	}
	attention := width
	if c.Recipe.Attention.DotProduct {
		attention = min(width, float64(c.Recipe.Input.Rowwise.Format.Element.StoredBits()))
	}
	saved := width*(2*hidden+2*intermediate) + attention*(q+2*kv)
	if c.Options.Recompute {
		saved = width * hidden
	}
	tokens := float64(c.Batch/max(c.Microbatches, 1)) * float64(c.Sequence)
	training := tokens*(layers*saved/8+4*vocabulary) + 8*float64(c.Batch)
	windows := min(evaluationBatch, max(c.ValidationTokens/max(c.Sequence, 1), 1))
	// Weights, two moments, a gradient, and those that gradientTree holds.
	matrices := 4 + bits.Len(uint(c.Microbatches/c.Parallel.dataRanks())) - 1
	return footprint{model: 4 * float64(matrices) * parameters / float64(c.Parallel.tensor()),
		activations: max(training, inferenceBytes(m, windows, c.Sequence))}
}

// inferenceBytes returns the minimum memory of a forward pass without the weights: the residual
// stream and the logits, both FP32.
func inferenceBytes(m decoder.Config, batch, sequence int) float64 {
	return 4 * float64(batch) * float64(sequence) * (float64(m.HiddenSize) + float64(m.VocabSize))
}

// available is a variable for tests.
var available = memory.Available

// CheckMemory returns a *ConfigError if the run needs more memory than the machine has available. The
// error names the size that exceeds its default most. Run calls it.
func (c *Config) CheckMemory() error {
	f, has := c.footprint(), available()/int64(max(1, c.Parallel.Local))
	if f.model+f.activations <= float64(has) {
		return nil
	}
	m, d := c.Model.WithDefaults(), DefaultConfig()
	type size struct {
		field          string
		value, initial int
	}
	sizes := []size{
		{"Model.HiddenSize", m.HiddenSize, d.Model.HiddenSize}, {"Model.IntermediateSize", m.IntermediateSize, d.Model.IntermediateSize},
		{"Model.NumHiddenLayers", m.NumHiddenLayers, d.Model.NumHiddenLayers},
	}
	if f.activations > f.model {
		sizes = append(sizes, size{"Batch", c.Batch, d.Batch * c.Microbatches}, size{"Sequence", c.Sequence, d.Sequence})
	}
	lower := sizes[0]
	for _, s := range sizes[1:] {
		if float64(s.value)/float64(s.initial) > float64(lower.value)/float64(lower.initial) {
			lower = s
		}
	}
	return invalid(lower.field, "is %d: the run needs at least %s of memory, %s for the model and %s for activations, but %s are "+
		"available: lower it",
		lower.value, memory.Text(f.model+f.activations), memory.Text(f.model), memory.Text(f.activations), memory.Text(float64(has)))
}
