package decoder

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

// GenerateOptions configures sampling. The zero value always takes the most likely byte, and stops
// when the model has no more positions.
type GenerateOptions struct {
	MaxTokens   int     // maximum number of bytes; 0: as many as the model has positions for
	Temperature float64 // of the softmax that bytes are drawn from; 0: the most likely byte
	TopK        int     // draw from this many of the most likely bytes; 0: all
	Seed        uint64
}

// Generate returns the bytes that continue a prompt, with a KV cache. An error, or the end of ctx,
// ends the sequence. An empty prompt stands for a newline. Tokens are padded to the recipe's
// alignment.
func (m *Model) Generate(ctx context.Context, s nn.Scope, prompt []byte, o GenerateOptions) iter.Seq2[byte, error] {
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
		limit := m.Config.MaxPositionEmbeddings - len(prompt) + 1
		if o.MaxTokens > 0 {
			limit = min(limit, o.MaxTokens)
		}
		session := m.newSession(s, m.Positions())
		for i := range limit {
			logits, err := session.Append(ctx, tokens)
			if err != nil {
				yield(0, err)
				return
			}
			next := o.choose(logits, i)
			if !yield(byte(next), nil) {
				return
			}
			tokens = []int32{int32(next)}
		}
	}
}

// admit returns an error for what Generate cannot do.
func (m *Model) admit(prompt []byte, o GenerateOptions) error {
	if err := m.Config.RequireBytes(); err != nil {
		return err
	}
	if limit := m.Config.MaxPositionEmbeddings; len(prompt) > limit {
		return fmt.Errorf("generate: the prompt has %d bytes, want at most %d, the positions of the model", len(prompt), limit)
	}
	if o.MaxTokens < 0 || o.TopK < 0 || !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0) {
		return fmt.Errorf("generate: got MaxTokens %d, Temperature %g, TopK %d: want finite values of at least 0", o.MaxTokens, o.Temperature, o.TopK)
	}
	return nil
}

// choose draws the token at an index of the generated text.
func (o *GenerateOptions) choose(logits []float32, index int) int {
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
	left := sum * (float64(stream.At(uint64(index))) / (1 << 32))
	for i, w := range weights {
		if left -= w; left < 0 {
			return order[i]
		}
	}
	return order[0]
}
