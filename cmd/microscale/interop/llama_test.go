package interop

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

var installTorch = flag.Bool("torch", false, "install PyTorch from PyPI, seven gigabytes with the CUDA libraries that its package for "+
	"Linux asks for")

// TestLlamaFlax compares logits and gradients of the unquantized recipe with transformers'
// Llama under JAX, from a saved checkpoint.
func TestLlamaFlax(t *testing.T) {
	slow.Full(t, "it installs JAX, and trains beside it")
	interpreter := python(t, "jax==0.4.38", "jaxlib==0.4.38", "flax==0.10.2", "transformers==4.46.3", "safetensors==0.4.5", "numpy==1.26.4")
	compareLlamas(t, interpreter, "flax", func(c decoder.Config) bool {
		return c.HeadDim == 0 && c.RopeTheta == 0 && !c.TieWordEmbeddings // which its Llama does not know
	})
}

// TestLlamaTorch is TestLlamaFlax for PyTorch. PyPI has no CPU-only package of PyTorch for x86
// Linux, and the package that it has does not load without its CUDA libraries. So the test
// installs it only with -torch, and otherwise uses the one of python3 if there is one.
func TestLlamaTorch(t *testing.T) {
	interpreter := "python3"
	if _, err := command(time.Minute, interpreter, "-c", "import torch, transformers, safetensors"); err != nil {
		interpreter = withTorch(t, "python3 has no torch with transformers, and no other is started", transformers4...)
	}
	compareLlamas(t, interpreter, "torch", func(decoder.Config) bool { return true })
}

// Versions of transformers, with the packages that they need to read quantized checkpoints. The
// test of checkpoints adds a newer compressed-tensors to the second.
var (
	sharedTorch   = []string{"torch==2.13.0", "numpy==2.2.6"}
	transformers4 = []string{"transformers==4.56.2", "compressed-tensors==0.14.0.1", "accelerate==1.15.0"}
	transformers5 = []string{"transformers==5.23.0", "compressed-tensors==0.15.0.1", "accelerate==1.15.0"}
)

// withTorch returns the interpreter of an environment with PyTorch and other
// packages. It skips the test without -torch.
func withTorch(t testing.TB, why string, requirements ...string) string {
	t.Helper()
	if !*installTorch {
		skipf(t, "%s: go test ./cmd/microscale/interop -run Torch -torch -timeout 90m does, and installs PyTorch where it has not, seven "+
			"gigabytes", why)
	}
	return over(t, python(t, sharedTorch...), requirements...)
}

// llamas are the models under test.
var llamas = map[string]decoder.Config{
	"grouped": {HiddenSize: 96, IntermediateSize: 160, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2},
	"tied":    {HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 2, RMSNormEps: 1e-3, TieWordEmbeddings: true},
	"heads": {HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 1, HeadDim: 24,
		RopeTheta: 500},
}

// compareLlamas saves the models that a framework supports, each in both dtypes, and compares
// them in one process, because starting it takes long.
func compareLlamas(t *testing.T, interpreter, framework string, has func(decoder.Config) bool) {
	t.Helper()
	arguments := []string{framework}
	dir := t.TempDir()
	for name, c := range llamas {
		if !has(c) {
			continue
		}
		for _, dtype := range []safetensors.Dtype{safetensors.F32, safetensors.BF16} {
			folder := filepath.Join(dir, name+"-"+dtype.String())
			saved := filepath.Join(folder, "model")
			if err := initialLlama(t, c).Save(saved, dtype); err != nil {
				t.Fatal(err)
			}
			m, err := decoder.Load(t.Context(), saved, decoder.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			writeExpected(t, m, filepath.Join(folder, "expected.safetensors"))
			arguments = append(arguments, folder)
		}
	}
	t.Logf("%s", scriptOutput(t, interpreter, "llama.py", arguments...))
}

// initialLlama returns a model with weights large enough for uneven attention, and norms that
// are not one.
func initialLlama(t *testing.T, c decoder.Config) *decoder.Model {
	t.Helper()
	m, err := decoder.New(c, decoder.Options{}, 5)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	for _, p := range m.Params() {
		for i := range p.Value.Data {
			if p.Value.Rows == 1 {
				p.Value.Data[i] += float32(r.NormFloat64()) / 4
			} else {
				p.Value.Data[i] *= 4
			}
		}
	}
	return m
}

// writeExpected writes the reference of llama.py: a forward and a backward pass of two
// sequences.
func writeExpected(t *testing.T, m *decoder.Model, path string) {
	t.Helper()
	const batch, length = 2, 150
	f32, err := recipe.Lookup("f32")
	if err != nil {
		t.Fatal(err)
	}
	scope := nn.Scope{Recipe: f32}
	r := rand.New(rand.NewPCG(6, 6))
	var tokens, targets []int32
	for range batch * length {
		tokens = append(tokens, r.Int32N(256))
		targets = append(targets, r.Int32N(256))
	}
	logits, err := m.Infer(&scope, tokens, batch)
	if err != nil {
		t.Fatal(err)
	}
	loss, err := m.Train(&scope, tokens, targets, batch, 1)
	if err != nil {
		t.Fatal(err)
	}

	data := map[string][]byte{
		"tokens": int32Bytes(tokens), "targets": int32Bytes(targets),
		"loss":   binary.LittleEndian.AppendUint64(nil, math.Float64bits(loss)),
		"logits": floatBytes(t, logits),
	}
	specs := []safetensors.Spec{
		{Name: "tokens", Dtype: safetensors.I32, Shape: []int64{batch, length}},
		{Name: "targets", Dtype: safetensors.I32, Shape: []int64{batch, length}},
		{Name: "loss", Dtype: safetensors.F64, Shape: []int64{1}},
		{Name: "logits", Dtype: safetensors.F32, Shape: []int64{int64(logits.Rows), int64(logits.Cols)}},
	}
	for _, p := range m.Params() {
		shape := []int64{int64(p.Grad.Rows), int64(p.Grad.Cols)}
		if p.Grad.Rows == 1 {
			shape = shape[1:]
		}
		specs = append(specs, safetensors.Spec{Name: p.Name, Dtype: safetensors.F32, Shape: shape})
		data[p.Name] = floatBytes(t, p.Grad)
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range data {
		if err := w.WriteTensorAt(name, d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func int32Bytes(v []int32) []byte {
	var data []byte
	for _, i := range v {
		data = binary.LittleEndian.AppendUint32(data, uint32(i))
	}
	return data
}

func floatBytes(t *testing.T, d tensor.Dense) []byte {
	t.Helper()
	data := make([]byte, 4*d.Rows*d.Cols)
	if err := tensor.ToBytes(data, d.Clone().Data, format.F32); err != nil {
		t.Fatal(err)
	}
	return data
}
