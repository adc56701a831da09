package interop

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestTorchFamilies compares the logits of small random models of every family with those of
// transformers' classes, in F32: of a whole sequence, layer by layer, and of a session that gets it in
// two parts. Quantized forms of a model have the logits of their decoded values, and so has the Hugging
// Face directory that is made of its GGUF file, in transformers, too.
func TestTorchFamilies(t *testing.T) {
	interpreter := withTorch(t, "transformers does not compute the logits of the families", architecturesWith...)
	root := t.TempDir()
	script(t, interpreter, "families.py", root)
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d models, %v", len(entries), err)
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			dir := filepath.Join(root, e.Name(), "model")
			tokens, want := expectedLogits(t, filepath.Join(root, e.Name(), "expected.safetensors"))
			for _, inference := range []bool{false, true} {
				t.Logf("inference %v: %s", inference, compareFamily(t, dir, loadDecoder(t, dir, inference), tokens, want))
			}
			layouts := []layoutOf{{"", quant.MXFP8, "", ""}, {"", quant.NVFP4, "", ""}, {"compressed-tensors", quant.MXFP4, "MXFP4A16", ""}}
			if slices.Contains(inGGUF, e.Name()) {
				layouts = append(layouts, layoutOf{"gguf", quant.Q8_0, "", ""})
			}
			for _, l := range append(layouts, ownLayouts[e.Name()]...) {
				t.Logf("%s %s: %.2g", l.format, l, compareQuantized(t, dir, l, tokens))
			}
		})
	}
	compareGGUFDirectories(t, interpreter, root)
}

// TestFamilyModels checks that families.py has a model of each family.
func TestFamilyModels(t *testing.T) {
	script, err := os.ReadFile("families.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range family.All() {
		if !strings.Contains(string(script), strconv.Quote(f.Class)) {
			t.Errorf("families.py has no model of %s", f.Class)
		}
	}
}

// inGGUF are the models that quantize writes as GGUF, and llama.cpp runs as transformers does.
var inGGUF = []string{
	"llama", "llama-3", "ministral", "smollm3", "qwen2", "qwen3", "qwen2-moe", "mixtral", "gemma2-heads", "gemma3-heads", "phi3-partial",
	"phi3-long", "phi3-short", "granite", "olmo2", "glm4", "gpt-oss", "olmo3", "deepseek-v3",
}

// ownLayouts are the layouts in which models of a family are published.
var ownLayouts = map[string][]layoutOf{
	"gpt-oss":     {{"gpt-oss", quant.MXFP4, "MXFP4", ""}},
	"deepseek-v3": {{"deepseek", quant.FP8Block, "FP8", ""}},
}

func loadDecoder(t *testing.T, path string, inference bool) *decoder.Model {
	t.Helper()
	m, err := decoder.Load(t.Context(), path, decoder.LoadOptions{Inference: inference})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func allLogits(t *testing.T, m *decoder.Model, tokens []int32) []float32 {
	t.Helper()
	logits, err := m.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	return logits.Data
}

// compareFamily compares a model with transformers' logits, and describes the largest differences.
func compareFamily(t *testing.T, dir string, m *decoder.Model, tokens []int32, want []float32) string {
	t.Helper()
	logits := allLogits(t, m, tokens)
	distance := requireLogits(t, logits, want)

	if p, has := m.Plan(), elements(t, dir); p.Parameters() != has {
		t.Errorf("the plan has %d parameters, the checkpoint %d", p.Parameters(), has)
	}
	x, err := m.Embed(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Layers() {
		if x, err = m.Layer(i).Forward(x, nn.Observer{}); err != nil {
			t.Fatal(err)
		}
	}
	head, err := m.Head(x, 0, m.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(head.Data, logits) {
		t.Error("layer by layer: logits differ")
	}

	const first = 100 // below the original length of long rotary embeddings
	s, err := m.NewSession(len(tokens))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), tokens[:first]); err != nil {
		t.Fatal(err)
	}
	last, err := s.Append(t.Context(), tokens[first:])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("largest difference %.2g of the largest logit, of a session %.2g", distance,
		requireLogits(t, last, want[len(want)-len(last):]))
}

// elements returns the number of elements of all tensors of a checkpoint.
func elements(t *testing.T, dir string) (n int64) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		n += info.Elements()
	}
	return n
}

// compareQuantized quantizes a model, and compares the result with the model of its decoded values.
func compareQuantized(t *testing.T, dir string, l layoutOf, tokens []int32) float64 {
	t.Helper()
	low, values := filepath.Join(t.TempDir(), "low"), filepath.Join(t.TempDir(), "values")
	if l.convention == "gguf" {
		low += ".gguf"
	}
	if err := l.write(t, dir, low); err != nil {
		t.Fatal(err)
	}
	source, err := convert.Open(low)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanDequantize(t.Context(), source, safetensors.F32)
	if err == nil {
		_, err = plan.Run(t.Context(), values, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	m := loadDecoder(t, low, false)
	if !m.Quantized() {
		t.Errorf("%s: no weight is quantized", l)
	}
	return requireLogits(t, allLogits(t, m, tokens), allLogits(t, loadDecoder(t, values, false), tokens))
}

// expectedLogits reads the tokens and the logits that families.py wrote.
func expectedLogits(t *testing.T, path string) (tokens []int32, logits []float32) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 4 {
			word := uint32(data[i]) | uint32(data[i+1])<<8 | uint32(data[i+2])<<16 | uint32(data[i+3])<<24
			if info.Name == "tokens" {
				tokens = append(tokens, int32(word))
			} else {
				logits = append(logits, math.Float32frombits(word))
			}
		}
	}
	return tokens, logits
}

// requireLogits returns the largest difference as a share of the largest logit. It must be below 2e-5.
func requireLogits(t *testing.T, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("got %d logits, want %d", len(got), len(want))
	}
	largest, worst, at := 0.0, 0.0, 0
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i] - w)); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= 2e-5*largest) {
		t.Errorf("logit %d: got %g, want %g, largest %g", at, got[at], want[at], largest)
	}
	return worst / largest
}
