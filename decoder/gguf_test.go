package decoder

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// TestGGUF: a model of each family has the same logits from a GGUF file as from a Hugging Face directory
// with the same codes. The positions exceed windows and the original lengths of rotary embeddings.
func TestGGUF(t *testing.T) {
	tokens := tokensOf(40)
	for class := range ggufConfigs {
		t.Run(class, func(t *testing.T) {
			dir, formats := writeGGUFModel(t, class), []quant.Format{quant.MXFP4, quant.Q8_0}
			if testing.Short() {
				formats = formats[:1]
			}
			for _, f := range formats {
				plain, file := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "model.gguf")
				quantizeTo(t, dir, plain, "plain", f)
				quantizeTo(t, dir, file, "gguf", f)
				want, got := logitsOf(t, plain, tokens), logitsOf(t, file, tokens)
				largest := 0.0
				for i := range want {
					largest = max(largest, math.Abs(float64(want[i])))
				}
				for i := range want {
					if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-5*largest) {
						t.Fatalf("%s: logit %d is %g, and %g from the directory", f, i, got[i], want[i])
					}
				}
			}
		})
	}
}

// tokensOf returns n tokens.
func tokensOf(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i*i+3*i) % 48
	}
	return tokens
}

// TestGGUFExperts: the MXFP4 experts of gpt-oss keep their codes and scales on the way from the published
// convention to a GGUF file and back, although the file has gate and up apart.
func TestGGUFExperts(t *testing.T) {
	dir, file, back := filepath.Join(t.TempDir(), "published"), filepath.Join(t.TempDir(), "model.gguf"), filepath.Join(t.TempDir(), "back")
	quantizeTo(t, writeGGUFModel(t, "GptOssForCausalLM"), dir, "gpt-oss", quant.MXFP4)
	relabelTo(t, dir, file, "gguf")
	relabelTo(t, file, back, "gpt-oss")
	nvfp4, codes := filepath.Join(t.TempDir(), "nvfp4.gguf"), filepath.Join(t.TempDir(), "nvfp4")
	quantizeTo(t, writeGGUFModel(t, "GptOssForCausalLM"), nvfp4, "gguf", quant.NVFP4)
	quantizeTo(t, writeGGUFModel(t, "GptOssForCausalLM"), codes, "plain", quant.NVFP4)
	if want, got := logitsOf(t, codes, tokensOf(40)), logitsOf(t, nvfp4, tokensOf(40)); !slices.Equal(want, got) {
		t.Error("nvfp4: the logits differ")
	}
	want, got := openCheckpoint(t, dir), openCheckpoint(t, back)
	experts := 0
	for _, x := range want.Tensors() {
		if !strings.Contains(x.Name, ".experts.") || strings.HasSuffix(x.Name, "_bias") {
			continue
		}
		experts++
		y, ok := got.Lookup(x.Name)
		a, b := make([]byte, x.Bytes()), make([]byte, y.Bytes())
		if !ok || x.Shard.File.ReadTensorAt(a, x.TensorInfo, 0) != nil || y.Shard.File.ReadTensorAt(b, y.TensorInfo, 0) != nil ||
			!bytes.Equal(a, b) {
			t.Errorf("%s has other bytes", x.Name)
		}
	}
	if experts != 8 {
		t.Errorf("%d tensors of experts, want 8", experts)
	}
	if want, got := logitsOf(t, dir, tokensOf(40)), logitsOf(t, file, tokensOf(40)); !slices.Equal(want, got) {
		t.Error("the logits differ")
	}
}

func relabelTo(t *testing.T, source, dst, convention string) {
	t.Helper()
	plan, err := convert.PlanRelabel(t.Context(), openCheckpoint(t, source), convention, "", nil)
	runPlan(t, plan, err, dst)
}

func quantizeTo(t *testing.T, source, dst, convention string, f quant.Format) {
	t.Helper()
	p, err := profile.For(f), error(nil)
	if f.Global { // llama.cpp ignores global scales in some graphs
		p, err = profile.Lookup("ggml")
	}
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), openCheckpoint(t, source), convert.QuantizeOptions{Quantizer: q, Convention: convention})
	runPlan(t, plan, err, dst)
}

func logitsOf(t *testing.T, path string, tokens []int32) []float32 {
	t.Helper()
	m, err := Load(t.Context(), path, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !m.Quantized() {
		t.Error("no weight is quantized")
	}
	y, err := m.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	return y.Data
}
