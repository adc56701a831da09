package decoder

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestWithHead checks that only the head is quantized, with the values of the format, and that
// sessions take the cache format of the model.
func TestWithHead(t *testing.T) {
	for name, c := range map[string]Config{
		"separate": {VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 2},
		"tied":     {VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 2, TieWordEmbeddings: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := New(c, Options{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			tokens := []int32{7, 299, 3}
			before, err := m.Logits(t.Context(), tokens, 1)
			if err != nil {
				t.Fatal(err)
			}
			low, err := m.WithHead(quant.Quantizer{Format: quant.MXFP4}, Inputs{Format: quant.BF16})
			if err != nil {
				t.Fatal(err)
			}
			got, err := low.Logits(t.Context(), tokens, 1)
			if err != nil {
				t.Fatal(err)
			}
			if relative := distance(got.Data, before.Data) / distance(before.Data, make([]float32, len(before.Data))); !(relative > 0.01 &&
				relative < 0.3) {
				t.Errorf("the logits differ by %g of their size, want the error of MXFP4", relative)
			}
			values, _ := low.head.values()
			w, _ := m.head.values()
			q, err := quant.Quantizer{Format: quant.MXFP4}.Rowwise(w, quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(values.Data, q.Dequantize(1).Data) {
				t.Error("the weights are not those of the quantized head")
			}
			again, err := m.Logits(t.Context(), tokens, 1)
			if err != nil || !slices.Equal(again.Data, before.Data) {
				t.Errorf("the original model changed (%v)", err)
			}
			e, err := low.Embed(tokens)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := m.Embed(tokens); err != nil || !slices.Equal(e.Data, want.Data) {
				t.Errorf("the embedding changed (%v)", err)
			}
		})
	}
}

// TestCacheBytes checks the memory of the KV cache that is predicted for a context against that of
// a full session, in F32 and in a block format, and the error for a format that a cache cannot have.
func TestCacheBytes(t *testing.T) {
	m, err := New(Config{VocabSize: 300, HiddenSize: 80, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1},
		Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []quant.Format{{}, quant.MXFP8, quant.FP8Row, quant.NVFP4} {
		m.Inference.Cache = f
		s := newSession(t, m, 20)
		appendTokens(t, s, make([]int32, 20)...)
		held := 0
		for i := range s.caches {
			held += s.caches[i].Bytes()
		}
		if got := m.CacheBytes(20); got != held {
			t.Errorf("%q: %d bytes are predicted, %d are held", f, got, held)
		}
	}
	m.Inference.Cache = quant.FP8Tensor
	if _, err := m.NewSession(20); err == nil {
		t.Error("a cache in fp8-tensor: got no error")
	}
}

// TestWithHeadAlternates checks that a model and its copy with another head, which share their
// layers, do not change each other's results when they take turns.
func TestWithHeadAlternates(t *testing.T) {
	m, tokens := sessionModel(t)
	want := slices.Clone(appendTokens(t, newSession(t, m, 0), tokens[:1030]...))
	copied, err := m.WithHead(quant.Quantizer{Format: quant.MXFP8}, Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		appendTokens(t, newSession(t, m, 0), tokens[:11]...)
		appendTokens(t, newSession(t, copied, 20), tokens[:2+i]...)
		if got := appendTokens(t, newSession(t, m, 0), tokens[:1030]...); !slices.Equal(got, want) {
			t.Fatalf("turn %d: logits differ from those before", i)
		}
	}
}
