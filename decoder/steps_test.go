package decoder

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestSteps compares the bits of a model that is run layer by layer with those of Logits, for
// trainable and quantized weights, and the outputs of linear layers with those of Layer.Linear.
func TestSteps(t *testing.T) {
	c := Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 3, NumAttentionHeads: 4, NumKeyValueHeads: 2}
	trained, err := New(c, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	low, err := trained.Quantize(quant.Quantizer{Format: quant.NVFP4}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 2, 250, 4, 4, 299, 7}
	for name, m := range map[string]*Model{"trained": trained, "quantized": low} {
		t.Run(name, func(t *testing.T) {
			want, err := m.Logits(t.Context(), tokens, 1)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time with the weights of the first
				x, err := m.Embed(tokens)
				if err != nil {
					t.Fatal(err)
				}
				linears := 0
				for i := range m.Layers() {
					l := m.Layer(i)
					o := nn.Observer{Linear: func(module string, in, out tensor.Dense) {
						linears++
						y, err := l.Linear(module, in)
						if err != nil || !slices.Equal(y.Data, out.Data) {
							t.Errorf("%s has another output (%v)", module, err)
						}
					}}
					if x, err = l.Forward(x, o); err != nil {
						t.Fatal(err)
					}
				}
				if linears != 12 {
					t.Errorf("%d linear layers were observed, want 12", linears)
				}
				for from := 0; from < 300; from += 128 {
					to := min(from+128, 300)
					got, err := m.Head(x, from, to)
					if err != nil {
						t.Fatal(err)
					}
					for i := range tokens {
						if !slices.Equal(got.Row(i), want.Row(i)[from:to]) {
							t.Errorf("token %d: the logits from %d differ", i, from)
						}
					}
				}
			}
			if _, err := m.Layer(0).Linear("lm_head", tensor.New(1, 64)); err == nil {
				t.Error("a linear layer that does not exist is no error")
			}
		})
	}
}

// TestQuantizeLayer compares a layer that is quantized by itself with that of a quantized model.
func TestQuantizeLayer(t *testing.T) {
	c := Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 4}
	m, err := New(c, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() { // so that rounding to BF16, which Model.Quantize does, changes nothing
		scope(t, "bf16").Round(p.Value)
	}
	q := quant.Quantizer{Format: quant.NVFP4}
	for _, activations := range []bool{false, true} {
		whole, err := m.Quantize(q, activations, 1)
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.Embed([]int32{1, 2, 3, 250})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Layer(1).Quantize(q, activations)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Forward(x, nn.Observer{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := whole.Layer(1).Forward(x, nn.Observer{})
		if err != nil || !slices.Equal(got.Data, want.Data) {
			t.Errorf("activations %v: the outputs differ (%v)", activations, err)
		}
		if exact, err := m.Layer(1).Forward(x, nn.Observer{}); err != nil || slices.Equal(got.Data, exact.Data) {
			t.Errorf("quantization changed nothing (%v)", err)
		}
		if _, err := l.Quantize(q, activations); err == nil {
			t.Error("quantized weights are quantized again")
		}
	}
}

// TestSize compares the numbers of elements with those of the configuration.
func TestSize(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
			TieWordEmbeddings: tied}
		m, err := New(c, Options{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		low, err := m.Quantize(quant.Quantizer{Format: quant.MXFP4}, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, model := range []*Model{m, low} {
			n := model.Size()
			linear := 0
			for _, shape := range n.Linear {
				linear += shape[0] * shape[1]
			}
			if want := 2 * (64*(64+32+32+64) + 3*64*96); len(n.Linear) != 14 || linear != want || n.Other != m.Config.Parameters()-want {
				t.Errorf("tied %v: got %d weights of %d elements and %d others", tied, len(n.Linear), linear, n.Other)
			}
		}
	}
}

// TestQuantizedHead compares the logits of a quantized head in blocks with the whole.
func TestQuantizedHead(t *testing.T) {
	m, err := New(Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 1, NumAttentionHeads: 4}, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.head.quantize(&m.stepScopes().quantized, quant.Quantizer{Format: quant.MXFP8}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.bias = make([]float32, 300)
	for i := range f.bias {
		f.bias[i] = float32(i)
	}
	m.head.linear, m.head.frozen = nil, f
	x, err := m.Embed([]int32{7, 8})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := m.Head(x, 0, 300)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < 300; from += 128 {
		to := min(from+128, 300)
		if part, err := m.Head(x, from, to); err != nil || !slices.Equal(part.Row(1), whole.Row(1)[from:to]) {
			t.Errorf("the logits from %d differ (%v)", from, err)
		}
	}
}

// TestHeadErrors checks that Head returns an error for ranges of tokens that the vocabulary or blocks of scales do not
// allow.
func TestHeadErrors(t *testing.T) {
	m, err := New(Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 1, NumAttentionHeads: 4}, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int{{64, 300}, {-128, 300}, {0, 301}, {256, 128}} {
		if _, err := m.Head(tensor.New(1, 64), c[0], c[1]); err == nil {
			t.Errorf("tokens %d to %d: got no error", c[0], c[1])
		}
	}
}

// TestEmbeddingFactor checks that under BF16 the factor of Gemma's embeddings, √32, is rounded to BF16 first.
func TestEmbeddingFactor(t *testing.T) {
	m := loadFamily(t, writeFamily(t, familyConfig("gemma2"), same), false)
	p := m.scopes(*scope(t, "bf16"))
	plain, err := m.embedding.Forward(&p.exempt, familyTokens())
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.embed(&p.exempt, familyTokens())
	if err != nil {
		t.Fatal(err)
	}
	want, exact := plain.Clone(), plain.Clone()
	nn.Scale(&p.exempt, want, 5.65625)
	nn.Scale(&p.exempt, exact, 5.656854)
	if !slices.Equal(got.Data, want.Data) || slices.Equal(got.Data, exact.Data) {
		t.Errorf("got %v…, want %v…, not %v…", got.Data[:4], want.Data[:4], exact.Data[:4])
	}
}
