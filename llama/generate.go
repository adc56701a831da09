package llama

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
)

// GenerateOptions say how text is continued. The zero value takes the likeliest
// byte each time, until the model's positions end.
type GenerateOptions struct {
	MaxTokens   int     // bytes at most; 0: as many as the model has positions for
	Temperature float64 // of the softmax that bytes are drawn from; 0: the likeliest byte
	TopK        int     // bytes, of the likeliest, that are drawn from; 0: all
	Seed        uint64
}

// Generate returns the bytes that continue a prompt, one after the other, with
// keys and values of the tokens before in a cache. An error ends them. An empty
// prompt is a newline. Tokens are filled up to the recipe's alignment, so that one
// at a time can be quantized.
func (m *Model) Generate(ctx context.Context, s nn.Scope, prompt []byte, o GenerateOptions) iter.Seq2[byte, error] {
	s.Pad = true
	return func(yield func(byte, error) bool) {
		if err := m.admit(prompt, o); err != nil {
			yield(0, err)
			return
		}
		if len(prompt) == 0 {
			prompt = []byte{'\n'}
		}
		tokens := make([]int32, len(prompt))
		for i, b := range prompt {
			tokens[i] = int32(b)
		}
		room := m.Config.MaxPositionEmbeddings - len(prompt) + 1
		if o.MaxTokens > 0 {
			room = min(room, o.MaxTokens)
		}
		caches := make([]nn.Cache, len(m.layers))
		for i := range room {
			if err := ctx.Err(); err != nil {
				yield(0, err)
				return
			}
			s.Microbatch = i // weights are quantized once
			logits, err := m.infer(&s, tokens, 1, caches)
			if err != nil {
				yield(0, err)
				return
			}
			next := o.choose(logits.Row(logits.Rows-1), i)
			if !yield(byte(next), nil) {
				return
			}
			tokens = []int32{int32(next)}
		}
	}
}

// admit reports what Generate cannot do.
func (m *Model) admit(prompt []byte, o GenerateOptions) error {
	if err := m.Config.RequireBytes(); err != nil {
		return err
	}
	if most := m.Config.MaxPositionEmbeddings; len(prompt) > most {
		return fmt.Errorf("the prompt has %d bytes, the model positions for %d: give it the end of the prompt alone", len(prompt), most)
	}
	if o.MaxTokens < 0 || o.TopK < 0 || !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0) {
		return fmt.Errorf("generation of %d tokens at temperature %g from the likeliest %d: none of these may be negative or infinite", o.MaxTokens, o.Temperature, o.TopK)
	}
	return nil
}

// choose draws the token that stands at a place of the generated text.
func (o *GenerateOptions) choose(logits []float32, place int) int {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if o.TopK > 0 {
		order = order[:min(o.TopK, len(order))]
	}
	if o.Temperature == 0 {
		return order[0]
	}
	weights, sum := make([]float64, len(order)), 0.0
	for i, token := range order {
		weights[i] = math.Exp(float64(logits[token]-logits[order[0]]) / o.Temperature)
		sum += weights[i]
	}
	stream := quant.Stream{Seed: o.Seed}
	left := sum * (float64(stream.At(uint64(place))) / (1 << 32))
	for i, w := range weights {
		if left -= w; left < 0 {
			return order[i]
		}
	}
	return order[0]
}
