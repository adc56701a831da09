package evaluation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// maxSequence is the default sequence length of an evaluation, in tokens, if the model
// has as many positions.
const maxSequence = 1024

// A ByteEvaluation computes the perplexity of a byte-level model, which an Evaluation does for one with a
// tokenizer.
type ByteEvaluation struct {
	Model       string   // as input.Open reads it
	Data        []string // as train.OpenCorpus reads it
	Tokens      int      // maximum
	Sequence    int      // tokens; 0: those of the model, at most maxSequence
	Recipe      recipe.Recipe
	Activations bool // quantize activations
	Threads     int
}

// ByteEvaluated is the result of a ByteEvaluation.
type ByteEvaluated struct {
	ByteEvaluation
	sources   []string
	text      string // name of the corpus
	quantized bool
	scales    activationScales
	tokens    int
	loss      float64 // nats per byte
	seconds   float64
}

// Run evaluates the model.
func (e ByteEvaluation) Run(ctx context.Context) (*ByteEvaluated, error) {
	m, err := loadBytes(ctx, e.Model, decoder.LoadOptions{Activations: e.Activations})
	if err != nil {
		return nil, err
	}
	var scales activationScales
	scales.stored, scales.perToken, scales.caches = m.ActivationScales()
	if e.Activations && scales == (activationScales{}) {
		return nil, show.Misuse("--activations: %s has no quantized weights and no KV cache scales; use --recipe instead",
			show.Printable(e.Model))
	}
	accumulator := e.Recipe.Accumulate[recipe.Fprop]
	switch {
	case accumulator.Model == nil || e.Activations: // the layers report units that do not exist
	case m.Quantized():
		return nil, show.Misuse("--accumulate: %s has quantized weights, which a matrix unit multiplies by quantized activations: add "+
			"--activations", show.Printable(e.Model))
	default:
		if err := e.Recipe.Validate(); err != nil {
			return nil, show.Misuse("--accumulate: %v", err)
		}
	}
	if positions := m.Config.MaxPositionEmbeddings; e.Sequence == 0 {
		e.Sequence = min(positions, maxSequence)
	} else if e.Sequence > positions {
		return nil, show.Misuse("--sequence: got %d, want at most %d, the positions of the model", e.Sequence, positions)
	}
	corpus, err := train.OpenCorpus(e.Data...)
	if err != nil {
		return nil, err
	}
	tokens, targets, err := corpus.Validation(max(e.Tokens/e.Sequence, 1), e.Sequence)
	if err != nil {
		return nil, err
	}
	scope := nn.Scope{Recipe: e.Recipe, Threads: e.Threads}
	start := time.Now()
	evaluation, err := train.Evaluate(ctx, m, scope, tokens, targets, e.Sequence)
	if err != nil {
		return nil, show.Interrupted(err, "nothing was measured")
	}
	if loss := evaluation.Loss; math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil, fmt.Errorf("evaluate %s: the loss is %g nats per byte: the logits of some token are NaN or infinite: check the weights "+
			"with microscale inspect", show.Printable(e.Model), loss)
	}
	return &ByteEvaluated{ByteEvaluation: e, sources: corpus.Sources, text: corpus.Name(), quantized: m.Quantized(), scales: scales,
		tokens: len(tokens), loss: evaluation.Loss, seconds: time.Since(start).Seconds()}, nil
}

// Document returns the result as JSON prints it. Each token of a sequence is scored; the losses of single ones are not kept.
func (r *ByteEvaluated) Document() Document {
	unknown := show.Number(math.NaN())
	return Document{
		Model: r.Model, Text: r.text, Bytes: r.tokens, Tokens: r.tokens, Method: byteMethod, Context: r.Sequence,
		Windows: r.tokens / r.Sequence, Scored: r.tokens, Seconds: r.seconds,
		LossDocument: LossDocument{NLL: show.Number(r.loss), NLLError: unknown, Perplexity: show.Number(math.Exp(r.loss)),
			PerplexityError: unknown, BitsPerByte: show.Number(r.loss / math.Ln2)},
		BytesDocument: &BytesDocument{Quantized: r.quantized, Activations: r.Activations, StoredScales: r.scales.stored,
			TokenScales: r.scales.perToken, KVCaches: r.scales.caches, Accumulate: r.Recipe.Accumulate[recipe.Fprop].String(), Data: r.sources},
	}
}

// byteMethod names the windows of a ByteEvaluation, the sequences of train.Corpus.Validation.
const byteMethod = "validation"

// Print prints the result as text or JSON.
func (r *ByteEvaluated) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, r.Document())
	}
	accumulated := ""
	if a := r.Recipe.Accumulate[recipe.Fprop]; a.Model != nil {
		accumulated = fmt.Sprintf("products of linear layers added as %s does\n", a)
	}
	_, err := fmt.Fprintf(w, "%s: %.4f nats per byte, perplexity %.3f, on %d tokens of %s, in %s\n%s%s",
		show.Printable(r.Model), r.loss, math.Exp(r.loss), r.tokens, show.Printable(r.text), show.DurationText(r.seconds),
		activationsText(r.scales), accumulated)
	return err
}

// activationScales counts the scales of activations, as decoder.Model.ActivationScales.
type activationScales struct{ stored, perToken, caches int }

// activationsText describes the scales of activations in a line, "" without any.
func activationsText(n activationScales) string {
	if n == (activationScales{}) {
		return ""
	}
	return fmt.Sprintf("activations: %s with stored scales, %d with scales per token; FP8 KV cache in %s\n",
		show.Counted(n.stored, "weight"), n.perToken, show.Counted(n.caches, "layer"))
}

// loadBytes reads a byte-level model.
func loadBytes(ctx context.Context, dir string, o decoder.LoadOptions) (*decoder.Model, error) {
	source, err := input.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	m, err := decoder.Read(ctx, source, o)
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, err
	}
	if err := m.Config.RequireBytes(); err != nil {
		return nil, fmt.Errorf("load %s: %w; --text evaluates models with a tokenizer", dir, err)
	}
	return m, nil
}
