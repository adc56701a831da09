package generation

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/microscale-go/microscale/tensor"
)

// A Logprob is the logarithm of the probability that the model gave a token of a text, from its logits before
// penalties, filters and temperature.
type Logprob struct {
	Token int32
	Value float64        // in nats; NaN for the first token of a prompt, which nothing predicts
	Top   []TokenLogprob // the most likely tokens in its place, the most likely first
}

// A TokenLogprob is the logarithm of the probability of one token.
type TokenLogprob struct {
	Token int32
	Value float64
}

// logprob returns the Logprob of a token. Logits beyond size belong to no token; they are part of the distribution,
// as they are for other software.
func logprob(logits []float32, size int, token int32, top int) Logprob {
	highest := math.Inf(-1)
	for _, l := range logits {
		highest = max(highest, float64(l))
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - highest)
	}
	total := highest + math.Log(sum)
	at := func(id int32) float64 { return float64(logits[id]) - total }
	result := Logprob{Token: token, Value: at(token)}
	for _, id := range mostLikely(logits[:min(len(logits), size)], top) {
		result.Top = append(result.Top, TokenLogprob{id, at(id)})
	}
	return result
}

// mostLikely returns the tokens of the highest logits, of equal ones that of the lower id first.
func mostLikely(logits []float32, n int) []int32 {
	before := func(a, b int32) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b)) }
	var best []int32
	if n == 0 {
		return best
	}
	for i := range logits {
		id := int32(i)
		if len(best) == n && before(id, best[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, id, before)
		best = slices.Insert(best, at, id)
		best = best[:min(len(best), n)]
	}
	return best
}

// score computes tokens of the prompt, and adds the log probabilities of those that follow them in it. It returns the
// logits after the last one.
func (a *Answer) score(ctx context.Context, tokens []int32) (last []float32, err error) {
	at := len(a.context.tokens)
	err = a.context.session.AppendAll(ctx, tokens, len(a.request.Prompt), func(first int, logits tensor.Dense) error {
		for i := range logits.Rows {
			if next := at + first + i + 1; next < len(a.request.Prompt) {
				a.PromptLogprobs = append(a.PromptLogprobs, logprob(logits.Row(i), a.model.Text.Tokenizer.Size(), a.request.Prompt[next],
					a.request.Logprobs))
			}
		}
		last = logits.Row(logits.Rows - 1)
		return nil
	})
	if err != nil {
		a.PromptLogprobs = a.PromptLogprobs[:at+1]
		return nil, err
	}
	a.context.tokens = append(a.context.tokens, tokens...)
	return last, nil
}
