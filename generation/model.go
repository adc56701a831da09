package generation

import (
	"context"
	"fmt"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
)

// A Model is a decoder with its text. Its contexts share buffers: use them from one goroutine at a
// time.
type Model struct {
	Name    string
	Text    Text
	decoder *decoder.Model
}

// New returns a model of d. The tokenizer may have special tokens that the model lacks, such as Gemma 3's of
// images and the padding of fine-tuned models: a text with one of them is an error.
func New(name string, d *decoder.Model, t Text) (*Model, error) {
	size, has := t.Tokenizer.Size(), d.Vocabulary()
	for id := has; id < size; id++ {
		if !t.Tokenizer.IsSpecial(uint32(id)) {
			return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model has %d: use the tokenizer of the model", name, size, has)
		}
	}
	return &Model{Name: name, Text: t, decoder: d}, nil
}

// Options configures Load.
type Options struct {
	Threads int             // goroutines; 0: one for each processor
	Head    quant.Quantizer // of the weights of the head; the zero format keeps them as they are stored
	Cache   quant.Format    // of the KV cache; the zero format is FP32
	Inputs  decoder.Inputs  // of quantized linear layers; the zero value is bf16
}

// Load reads a model for inference. Its name is part of errors. The source can be closed afterwards.
func Load(ctx context.Context, name string, source *hf.Checkpoint, o Options) (*Model, error) {
	if o.Inputs.Format.Element == nil {
		o.Inputs = decoder.Inputs{Format: quant.BF16}
	}
	d, err := decoder.Read(ctx, source, decoder.LoadOptions{Inference: true, Inputs: o.Inputs})
	if err != nil {
		return nil, err
	}
	d.Inference.Threads, d.Inference.Cache = o.Threads, o.Cache
	if o.Head.Format.Element != nil {
		if d, err = d.WithHead(o.Head, o.Inputs); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	t, err := readText(source, d.Config.RequireBytes() == nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return New(name, d, t)
}

// defaultPositions is the number of positions of a context unless the user gives it: the KV cache
// of the longest contexts of models takes more memory than the model.
const defaultPositions = 4096

// Positions returns the positions of a context for the number that a user gave: 0 means those of the
// model, but at most 4096.
func (m *Model) Positions(given int) int {
	if given == 0 {
		return min(m.decoder.Positions(), defaultPositions)
	}
	return given
}

// NewContext returns an empty context of at most the given number of positions. Contexts whose KV
// caches would not fit in memory together are an error.
func (m *Model) NewContext(positions, contexts int) (*Context, error) {
	s, err := m.decoder.NewSession(positions)
	if err != nil {
		return nil, err
	}
	need := float64(m.decoder.CacheBytes(positions)) * float64(contexts)
	if has := float64(memory.Available()); need > has {
		return nil, fmt.Errorf("the KV cache of %d contexts of %d tokens needs %s of memory, but %s are available: use a smaller context",
			contexts, positions, memory.Text(need), memory.Text(has))
	}
	return &Context{session: s}, nil
}
