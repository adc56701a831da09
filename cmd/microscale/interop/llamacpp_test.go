package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/train"
)

const (
	ggufPackage     = "gguf==0.19.0"
	llamaCPPPackage = "llama-cpp-python==0.3.36"
)

var buildLlamaCPP = flag.Bool("build", false, "build "+llamaCPPPackage+" from its source, once: about ten minutes on two cores")

// ggufFormats are the formats that our GGUF files support.
var ggufFormats = []quant.Format{quant.BF16, quant.Q8_0, quant.MXFP4, quant.NVFP4}

// small is a byte-level Llama.
var small = decoder.Config{VocabSize: 256, HiddenSize: 128, IntermediateSize: 256, NumHiddenLayers: 2, NumAttentionHeads: 4,
	NumKeyValueHeads: 2, MaxPositionEmbeddings: 512}

// trained returns a directory with a small byte-level Llama after a few training steps, and a
// held-out text.
func trained(t *testing.T) (dir string, text []byte) {
	t.Helper()
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	c := train.DefaultConfig()
	c.Model = small
	c.Steps, c.Batch, c.Sequence, c.ValidationTokens, c.LearningRate = 60, 8, 128, 1024, 1e-2
	c.Data, c.Out = corpus, filepath.Join(t.TempDir(), "model")
	if c.Recipe, err = recipe.Lookup("bf16"); err != nil {
		t.Fatal(err)
	}
	if _, err := train.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	_, validation := corpus.Text()
	return c.Out, validation[:1024]
}

// written quantizes a directory to dst.
func written(t *testing.T, dir, dst string, f quant.Format, convention string) {
	t.Helper()
	writtenBy(t, dir, dst, profile.For(f), f, convention)
}

// writtenBy quantizes a directory to dst by a profile.
func writtenBy(t *testing.T, dir, dst string, by profile.Profile, f quant.Format, convention string) {
	t.Helper()
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	q, err := by.Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: q, Convention: convention})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestGGUF: llama.cpp's Python package gguf reads the names, the metadata and, bit for bit, the
// values of our files.
func TestGGUF(t *testing.T) {
	interpreter := python(t, ggufPackage)
	dir := filepath.Join(t.TempDir(), "model")
	model, err := decoder.New(small.WithDefaults(), decoder.Options{}, 1)
	if err == nil {
		err = model.Save(dir, safetensors.BF16)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ggufFormats {
		t.Run("format="+f.Name, func(t *testing.T) {
			path, values := filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "values")
			written(t, dir, path, f, "gguf")
			c, err := convert.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			m := checkpoint.Read(c)
			description := map[string]any{}
			var all []byte
			for _, w := range m.Weights {
				x, global := unscaled(t, w)
				raw := make([]byte, 4*len(x.Data))
				if err := tensor.ToBytes(raw, x.Data, format.F32); err != nil {
					t.Fatal(err)
				}
				description[w.Name] = map[string]any{"offset": len(all), "shape": w.Shape, "global": global}
				all = append(all, raw...)
			}
			text, err := json.Marshal(description)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(values, all, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(values+".json", text, 0o666); err != nil {
				t.Fatal(err)
			}
			script(t, interpreter, "read_gguf.py", path, values)
		})
	}
}

// unscaled returns the values of a weight without its global scale, and that scale. GGUF stores
// it in a separate tensor, by which llama.cpp multiplies products.
func unscaled(t *testing.T, w *checkpoint.Weight) (tensor.Dense, float32) {
	t.Helper()
	rows, cols := w.Matrix()
	if !w.Quantized() {
		x, err := w.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		return x, 1
	}
	q, err := w.ReadCodes(checkpoint.Tile{To: rows, ToCol: cols})
	if err != nil {
		t.Fatal(err)
	}
	global := q.Global
	q.Global = 1
	return q.Dequantize(0), global
}

// TestLlamaCPP: llama.cpp loads our files, generates, and computes the cross-entropy of our own
// forward pass with the same weights.
func TestLlamaCPP(t *testing.T) {
	interpreter := built(t, llamaCPPPackage)
	dir, text := trained(t)
	const window = 256
	input := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(input, text, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, f := range ggufFormats {
		t.Run("format="+f.Name, func(t *testing.T) {
			path, result := filepath.Join(t.TempDir(), "m.gguf"), filepath.Join(t.TempDir(), "result.json")
			written(t, dir, path, f, "gguf")
			script(t, interpreter, "run_llamacpp.py", path, input, fmt.Sprint(window), result)
			var theirs struct {
				Nats      float64 `json:"nats"` // per byte
				Bytes     []byte  `json:"bytes"`
				Back      []byte  `json:"back"`
				Generated []byte  `json:"generated"`
				Version   string  `json:"version"`
			}
			raw, err := os.ReadFile(result)
			if err == nil {
				err = json.Unmarshal(raw, &theirs)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(theirs.Bytes, text) || !bytes.Equal(theirs.Back, text) {
				t.Error("its tokens are not the bytes of the text, or do not become them again")
			}
			// llama.cpp quantizes the activations of block formats to 8 bits, in blocks of 32,
			// and those of BF16 weights to BF16; the rest is F32, as here.
			values, activations := dir, quant.BF16
			if f.Scaled() {
				quantized := filepath.Join(t.TempDir(), "quantized")
				written(t, dir, quantized, f, "")
				values, activations = dequantized(t, quantized), quant.Q8_0
			}
			exact, ours := nats(t, values, text, window, quant.F32), nats(t, values, text, window, activations)
			t.Logf("%s: nats per byte: llama.cpp %.5f, here %.5f, and %.5f by F32 activations (perplexity %.4f, %.4f, %.4f); it goes on with %q",
				f, theirs.Nats, ours, exact, math.Exp(theirs.Nats), math.Exp(ours), math.Exp(exact), theirs.Generated)
			if d := math.Abs(theirs.Nats - ours); d > 5e-4 {
				t.Errorf("%g nats apart", d)
			}
			if len(theirs.Generated) != 32 {
				t.Errorf("generated %d bytes", len(theirs.Generated))
			}
		})
	}
}

// dequantized returns a directory with the F32 values of a quantized one.
func dequantized(t *testing.T, dir string) string {
	t.Helper()
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanDequantize(t.Context(), source, safetensors.F32)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "values")
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// nats returns the mean cross-entropy of a text in nats per byte, in windows of n bytes, under
// the weights of a directory. Inputs of linear layers except the head are quantized to a
// format; the rest is F32.
func nats(t *testing.T, dir string, text []byte, n int, activations quant.Format) float64 {
	t.Helper()
	m, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f32, err := recipe.Lookup("f32")
	if err != nil {
		t.Fatal(err)
	}
	f32.Input = recipe.Operand{Rowwise: quant.Quantizer{Format: activations}, Columnwise: quant.Quantizer{Format: activations}}
	var sum float64
	count := 0
	for ; len(text) >= n; text = text[n:] {
		tokens := make([]int32, n)
		for i, b := range text[:n] {
			tokens[i] = int32(b)
		}
		loss, err := m.Loss(&nn.Scope{Recipe: f32, Inference: true, Pad: true}, tokens[:n-1], tokens[1:], 1)
		if err != nil {
			t.Fatal(err)
		}
		sum += loss * float64(n-1)
		count += n - 1
	}
	return sum / float64(count)
}

// built returns the interpreter of a virtual environment with a package that PyPI has as source
// only.
func built(t testing.TB, requirement string) string {
	t.Helper()
	dir := environment(t, requirement, func(dir string) (string, error) {
		if !*buildLlamaCPP {
			return "it is built from source, which takes ten minutes, once: go test ./cmd/microscale/interop -run LlamaCPP -build -timeout 60m",
				os.ErrNotExist
		}
		if out, err := command(2*time.Minute, "python3", "-m", "venv", dir); err != nil {
			return "python3 -m venv: " + lastLine(out, err), err
		}
		const options = "-DLLAVA_BUILD=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF " +
			"-DLLAMA_BUILD_SERVER=OFF"
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Minute)
		defer cancel()
		pip := exec.CommandContext(ctx, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			requirement)
		pip.Env = append(os.Environ(), "CMAKE_ARGS="+options)
		out, err := pip.CombinedOutput()
		if err != nil {
			return "pip install: " + lastLine(out, err), err
		}
		return "", nil
	})
	return filepath.Join(dir, "bin", "python")
}
