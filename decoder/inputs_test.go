package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// TestInputs checks models whose linear layers take inputs in BF16 or as 8-bit integers: one matrix
// for each layer, in the order of the kernels, the same logits for tokens together and one by one,
// and a smaller error than that of the weights.
func TestInputs(t *testing.T) {
	m, tokens := trained(t, small), []int32{'t', 'h', 'e', ' ', 'q', 'u', 'i', 'c', 'k', ' ', 'b', 'r', 'o', 'w', 'n'}
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	floats := cpu.Has(cpu.AVX2.Set()) && !cpu.Has(cpu.AVX512F.Set())
	interleaves := map[string]bool{ // whether there are kernels of interleaved weights
		quant.BF16.Name: cpu.Has(cpu.AVX512.Set()) || floats, quant.MXINT8.Name: cpu.Has(cpu.AVX2.Set()) || cpu.Has(cpu.NEONDot.Set()),
	}
	original := appendTokens(t, newSession(t, m, 0), tokens...)
	stored := []*checkpoint.Convention{checkpoint.Plain(), conventionNamed(t, "compressed-tensors")}
	for i, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.MXFP8, quant.NVFP4, quant.FP8Row} {
		convention := stored[i/3]
		low := quantized(t, dir, f.Name, quant.Quantizer{Format: f}, convention)
		exact, err := Load(t.Context(), low, LoadOptions{Inference: true})
		if err != nil {
			t.Fatal(err)
		}
		want := appendTokens(t, newSession(t, exact, 0), tokens...)
		for _, in := range []Inputs{{quant.BF16, false}, {quant.MXINT8, false}, {quant.MXINT8, true}} {
			inputs := in.Format
			t.Run(fmt.Sprint(convention.Name, "/", f.Name, "/", inputs.Name, "/residual=", in.Residual), func(t *testing.T) {
				fast, err := Load(t.Context(), low, LoadOptions{Inference: true, Inputs: in})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range fast.layers[1].projections() {
					if n := len(p.frozen.parts); n != 1 {
						t.Errorf("%s: got %d matrices, want 1", p.name, n)
					}
					supported := f.Element.Bits() == 4 && interleaves[inputs.Name]
					if f.Name == quant.MXFP8.Name && inputs.Name == quant.BF16.Name {
						supported = floats
					}
					if inside := p.frozen.parts[0].interleaved != nil; inside != supported {
						t.Errorf("%s: interleaved: %v", p.name, inside)
					}
				}
				got := appendTokens(t, newSession(t, fast, 0), tokens...)
				one := newSession(t, fast, 0)
				var last []float32
				for _, token := range tokens {
					last = appendTokens(t, one, token)
				}
				if !near(last, got) {
					t.Error("the logits of tokens one by one differ from those of all together")
				}
				if from, limit := distance(got, want), distance(want, original); !(from > 0 && from < limit) {
					t.Errorf("got distance %g from inputs in F32, want less than that of the weights, %g", from, limit)
				}
				if from, limit := distance(got, want), 0.02*distance(want, original); in.Residual && !(from < limit) {
					t.Errorf("got distance %g from inputs in F32, want less than %g", from, limit)
				}
				stored, dynamic, _ := fast.ActivationScales()
				if quantizes := inputs.Scaled(); stored != 0 || (dynamic > 0) != quantizes {
					t.Errorf("got %d stored and %d dynamic scales of inputs in %s", stored, dynamic, inputs)
				}
			})
		}
	}
}

// TestInputsResidual checks the terms of inputs with a residual: their errors, and that a layer adds the products of both, with any
// number of threads. Blocks have their largest magnitude anywhere between two powers of two, and elements of all sizes below it.
func TestInputsResidual(t *testing.T) {
	const tokens, in, out, block = 3, 8 * 32, 32, 32
	r := rand.New(rand.NewPCG(1, 2))
	x, w := tensor.New(tokens, in), tensor.New(out, in)
	for i := range w.Data {
		w.Data[i] = float32(r.NormFloat64())
	}
	for i := range x.Data {
		x.Data[i] = float32(math.Ldexp(r.Float64()*2-1, r.IntN(12)-10))
	}
	copy(x.Data, []float32{127.0 / 64, 127.49 / 64, 127.5 / 64, -127.51 / 64, 255.0 / 128, -1, 1.0 / 128, 0x1p-14}) // the first block
	clear(x.Data[block : 2*block])
	weight, err := quant.Quantizer{Format: quant.MXFP4}.Rowwise(w, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	layer := &frozen{name: "l", parts: []frozenPart{{weight: weight, input: &activation{format: quant.MXINT8, residual: true}}}}
	s := scope(t, "f32")
	var terms [2]tensor.Dense
	s.Observer.Operand = func(o nn.Observation) {
		if terms[0].Data == nil {
			terms[0] = o.Quantized.Dequantize(1)
			return
		}
		terms[1] = o.Quantized.Dequantize(1)
		for i, v := range o.Source.Data {
			if want := x.Data[i] - terms[0].Data[i]; v != want {
				t.Errorf("element %d: the residual is %g, want %g", i, v, want)
			}
		}
	}
	y, err := layer.forward(s, x)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(x.Data); from += block {
		amax := 0.0
		for _, v := range x.Data[from : from+block] {
			amax = max(amax, math.Abs(float64(v)))
		}
		for i := from; i < from+block; i++ {
			sum := float64(terms[0].Data[i]) + float64(terms[1].Data[i])
			if e := math.Abs(float64(x.Data[i]) - sum); e > 1.01*0x1p-14*amax {
				t.Errorf("element %d: %g is quantized to %g, the largest magnitude is %g", i, x.Data[i], sum, amax)
			}
		}
	}
	var products [2]tensor.Dense
	for i, term := range terms {
		q, err := quant.Quantizer{Format: quant.MXINT8}.Rowwise(term, quant.With{}) // the same codes
		if err != nil {
			t.Fatal(err)
		}
		products[i] = tensor.New(tokens, out)
		if err := gemm.Mul(products[i], q, weight, gemm.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range y.Data {
		if want := products[0].Data[i] + products[1].Data[i]; math.Abs(float64(got-want)) > 1e-6*(1+math.Abs(float64(want))) {
			t.Errorf("element %d of the product is %g, want %g", i, got, want)
		}
	}
	s.Observer.Operand, s.Threads = nil, 3
	if again, err := layer.forward(s, x); err != nil || !slices.Equal(again.Data, y.Data) {
		t.Errorf("three threads: another product (%v)", err)
	}
}

// TestInputsBF16 checks that layers whose weights are in BF16 take inputs in BF16 if the others do,
// with one matrix for each layer, and otherwise inputs in F32.
func TestInputsBF16(t *testing.T) {
	m, tokens := trained(t, small), []int32{'t', 'h', 'e', ' ', 'q', 'u', 'i', 'c', 'k'}
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	exact, err := Load(t.Context(), dir, LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	want := appendTokens(t, newSession(t, exact, 0), tokens...)
	norm := distance(want, make([]float32, len(want)))
	for _, inputs := range []quant.Format{quant.BF16, quant.MXINT8} {
		fast, err := Load(t.Context(), dir, LoadOptions{Inference: true, Inputs: Inputs{Format: inputs}})
		if err != nil {
			t.Fatal(err)
		}
		rounds := inputs.Element == quant.BF16.Element
		for _, p := range fast.layers[1].projections() {
			if n := len(p.frozen.parts); n != 1 {
				t.Errorf("%s: got %d matrices, want 1", p.name, n)
			}
			if in := p.frozen.parts[0].input; (in != nil) != rounds {
				t.Errorf("%s with inputs in %s: got inputs %v", p.name, inputs, in)
			}
		}
		got := appendTokens(t, newSession(t, fast, 0), tokens...)
		if from := distance(got, want); (from > 0) != rounds || from > 0.01*norm {
			t.Errorf("inputs in %s: got distance %g from inputs in F32, of %g", inputs, from, norm)
		}
	}
}

// conventionNamed returns the convention of a name.
func conventionNamed(t *testing.T, name string) *checkpoint.Convention {
	t.Helper()
	for _, c := range checkpoint.Conventions() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no convention has the name %s", name)
	return nil
}

// distance returns the Euclidean distance.
func distance(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += math.Pow(float64(a[i]-b[i]), 2)
	}
	return math.Sqrt(sum)
}

// TestStoredEmbedding checks that a model for inference keeps a BF16 embedding as it is stored, that
// a tied head shares it, and that both compute the same as FP32 copies.
func TestStoredEmbedding(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := small
		c.TieWordEmbeddings = tied
		dir := t.TempDir()
		if err := trained(t, c).Save(dir, safetensors.BF16); err != nil {
			t.Fatal(err)
		}
		copied, err := Load(t.Context(), dir, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := Load(t.Context(), dir, LoadOptions{Inference: true})
		if err != nil {
			t.Fatal(err)
		}
		table := stored.embedding.Stored
		if table == nil || table.Format.Name != quant.BF16.Name || len(stored.embedding.Params()) != 0 {
			t.Fatalf("tied=%v: the embedding is not stored in BF16", tied)
		}
		if shared := stored.head.frozen.parts[0].weight == table; shared != tied {
			t.Errorf("tied=%v: the head shares the embedding: %v", tied, shared)
		}
		if !near(logits(t, stored, "f32"), logits(t, copied, "f32")) {
			t.Errorf("tied=%v: the logits differ from those of FP32 copies", tied)
		}
		if _, err := stored.Infer(scope(t, "f32"), []int32{0, 256}, 1); err == nil {
			t.Errorf("tied=%v: got no error for a token outside of the vocabulary", tied)
		}
	}
}

// TestSharedTable checks that a tied head has the memory of a quantized embedding, unless its codes may be
// interleaved, and computes the same as a head that was read separately.
func TestSharedTable(t *testing.T) {
	c := small
	c.TieWordEmbeddings = true
	source := saved(t, c)
	for _, f := range []quant.Format{quant.MXFP8, quant.FP8Tensor, quant.MXFP4} {
		low := embedded(t, source, f)
		want, err := Load(t.Context(), low, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, inputs := range []quant.Format{{}, quant.BF16} {
			m, err := Load(t.Context(), low, LoadOptions{Inference: true, Inputs: Inputs{Format: inputs}})
			if err != nil {
				t.Fatal(err)
			}
			head := m.head.frozen.parts[0]
			if shared := head.weight != nil && head.weight == m.embedding.Stored; shared != (f.Name != quant.MXFP4.Name) {
				t.Errorf("%s: the head shares the table: %v", f, shared)
			}
			if (head.input == nil) != (inputs.Element == nil) || head.input != nil && head.input.format.Name != inputs.Name {
				t.Errorf("%s: the inputs of the head are %+v, want %s", f, head.input, inputs.Name)
			}
			if inputs.Element == nil && !near(logits(t, m, "f32"), logits(t, want, "f32")) {
				t.Errorf("%s: the logits differ from those of a separate head", f)
			}
		}
		quantized, err := hf.Open(low)
		if err != nil {
			t.Fatal(err)
		}
		p := want.Plan()
		_, rest := p.HeldBytes(quantized)
		table, norm := f.Bytes(p.Vocabulary, p.Hidden), 2*p.Hidden
		if f.Name == quant.MXFP4.Name {
			table *= 2
		}
		if err := quantized.Close(); err != nil || rest != int64(table+norm) {
			t.Errorf("%s: got %d bytes beside the layers, want %d (%v)", f, rest, table+norm, err)
		}
	}
}

// embedded quantizes the embedding of a checkpoint, too, and returns the directory.
func embedded(t *testing.T, source *hf.Checkpoint, f quant.Format) string {
	t.Helper()
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: "plain",
		Include: []*regexp.Regexp{regexp.MustCompile("embed_tokens")}})
	if err != nil {
		t.Fatal(err)
	}
	low := filepath.Join(t.TempDir(), f.Name)
	if _, err := plan.Run(t.Context(), low, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return low
}

// savedSmall returns a checkpoint of a trained small model in BF16.
func savedSmall(t *testing.T) *hf.Checkpoint {
	t.Helper()
	return saved(t, small)
}

func saved(t *testing.T, c Config) *hf.Checkpoint {
	t.Helper()
	dir := t.TempDir()
	if err := trained(t, c).Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() }) // read only
	return source
}

// TestQuantizedEmbedding checks that a model for inference keeps a quantized embedding as it is stored, and
// computes the same as with an FP32 table.
func TestQuantizedEmbedding(t *testing.T) {
	source := savedSmall(t)
	for _, f := range []quant.Format{quant.MXFP4, quant.FP8Tensor, quant.NVFP4} {
		low := embedded(t, source, f)
		copied, err := Load(t.Context(), low, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := Load(t.Context(), low, LoadOptions{Inference: true})
		if err != nil {
			t.Fatal(err)
		}
		if stored.embedding.Stored == nil {
			t.Errorf("%s: the embedding does not stay as it is stored", f)
		}
		quantized, err := hf.Open(low)
		if err != nil {
			t.Fatal(err)
		}
		p := stored.Plan()
		_, rest := p.HeldBytes(quantized)
		want := f.Bytes(p.Vocabulary, p.Hidden) + 2*p.Vocabulary*p.Hidden + 2*p.Hidden // embedding, head and norm
		if err := quantized.Close(); err != nil || rest != int64(want) {
			t.Errorf("%s: got %d bytes beside the layers, want %d (%v)", f, rest, want, err)
		}
		if !near(logits(t, stored, "f32"), logits(t, copied, "f32")) {
			t.Errorf("%s: the logits differ from those of an FP32 table", f)
		}
	}
}

// TestDividedTable checks that a table of NVFP4 stays as it is stored unless clients divide by its global
// scale.
func TestDividedTable(t *testing.T) {
	source := savedSmall(t)
	for convention, keeps := range map[string]bool{"plain": true, "modelopt": true, "compressed-tensors": false} {
		plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
			Convention: convention})
		if err != nil {
			t.Fatal(err)
		}
		low := filepath.Join(t.TempDir(), convention)
		if _, err := plan.Run(t.Context(), low, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		quantized, err := hf.Open(low)
		if err != nil {
			t.Fatal(err)
		}
		defer quantized.Close()
		w, ok := checkpoint.Read(quantized).Lookup("model.layers.0.self_attn.q_proj.weight")
		if !ok || !w.Quantized() || keepsTable(w) != keeps {
			t.Errorf("%s: the table stays as it is stored: %v", convention, !keeps)
		}
		codes, err := w.ReadCodes(checkpoint.Tile{To: 1, ToCol: 64})
		if err != nil {
			t.Fatal(err)
		}
		values, err := w.ReadTile(checkpoint.Tile{To: 1, ToCol: 64})
		if err != nil {
			t.Fatal(err)
		}
		if keeps && !slices.Equal(codes.Dequantize(1).Data, values.Data) {
			t.Errorf("%s: the codes have other values than clients compute", convention)
		}
	}
}
