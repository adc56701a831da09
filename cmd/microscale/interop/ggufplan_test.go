package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ggufplan"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// llamaMixtures are values of general.file_type of mixtures, besides the names of formats.
var llamaMixtures = map[string]int{"q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_0": 2, "q4_1": 3, "q4_k_s": 14, "q4_k_m": 15,
	"q5_0": 8, "q5_1": 9, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "mxfp4_moe": 38}

// TestMixtures compares the types and bytes of all tensors of each mixture with those that llama.cpp's library writes.
func TestMixtures(t *testing.T) {
	slow.Full(t, "it quantizes a model 28 times")
	source := filepath.Join(t.TempDir(), "source.gguf")
	writeSample(t, source)
	compareMixtures(t, source, "", ggufplan.Names()...)
	importance, text := filepath.Join(t.TempDir(), "imatrix.gguf"), filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, bytes.Repeat([]byte("Not all those who wander are lost\n"), 40), 0o666); err != nil {
		t.Fatal(err)
	}
	method, err := windows.LookupMethod("all")
	if err != nil {
		t.Fatal(err)
	}
	c := evaluation.Calibration{Out: importance}
	c.Model, c.Text, c.Method, c.Stderr, c.Stream = source, text, method, io.Discard, importance+".stream"
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	compareMixtures(t, source, importance, "q4_k_m")
}

// writeSample writes the sample model as a GGUF file in BF16.
func writeSample(t *testing.T, path string) {
	t.Helper()
	c, err := sample.Open(t.Context(), sample.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	plan, err := convert.PlanQuantize(t.Context(), c, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.BF16},
		Convention: "gguf"})
	if err == nil {
		_, err = plan.Run(t.Context(), path, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestImportance compares mixtures of a model with experts, with an importance matrix in both forms and without, with those of llama.cpp's
// library.
func TestImportance(t *testing.T) {
	slow.Full(t, "it quantizes a model 10 times")
	dir := t.TempDir()
	source := filepath.Join(dir, "source.gguf")
	writeExperts(t, source)
	script(t, python(t, "gguf==0.19.0", "numpy==2.4.6"), "write_imatrix.py", source, dir)
	compareMixtures(t, source, filepath.Join(dir, "imatrix.gguf"), "q2_k", "q4_0", "q4_k_m", "q5_0")
	compareMixtures(t, source, filepath.Join(dir, "imatrix.dat"), "q4_k_m")
	compareMixtures(t, source, "", "mxfp4_moe")
}

// writeExperts writes a model of 8 layers with 3 experts.
func writeExperts(t *testing.T, path string) {
	t.Helper()
	const layers, width, experts = 8, 256, 3
	specs := []gguf.Spec{{Name: "token_embd.weight", Shape: []int64{32, width}}, {Name: "output_norm.weight", Shape: []int64{width}},
		{Name: "output.weight", Shape: []int64{32, width}}}
	for i := range layers {
		for _, name := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp", "ffn_norm", "attn_norm", "ffn_gate_exps",
			"ffn_up_exps", "ffn_down_exps"} {
			shape := []int64{width, width}
			switch {
			case strings.HasSuffix(name, "_norm"):
				shape = shape[1:]
			case strings.HasSuffix(name, "_inp"):
				shape[0] = experts
			case strings.HasSuffix(name, "_exps"):
				shape = []int64{experts, width, width}
			}
			specs = append(specs, gguf.Spec{Name: fmt.Sprintf("blk.%d.%s.weight", i, name), Shape: shape})
		}
	}
	pairs := []gguf.Pair{{Key: "general.architecture", Value: "llama"}}
	for key, n := range map[string]uint32{"block_count": layers, "context_length": 64, "embedding_length": width, "feed_forward_length": width,
		"attention.head_count": 4, "attention.head_count_kv": 4, "expert_count": experts, "expert_used_count": 2, "vocab_size": 32} {
		pairs = append(pairs, gguf.Pair{Key: "llama." + key, Value: n})
	}
	pairs = append(pairs, gguf.Pair{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)})
	l, err := gguf.NewLayout(specs, pairs)
	if err != nil {
		t.Fatal(err)
	}
	data, r := bytes.Clone(l.HeaderBytes()), rand.New(rand.NewPCG(1, 2))
	for int64(len(data)) < l.FileSize() {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())/50))
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// compareMixtures compares mixtures of a GGUF file, with an importance matrix or "", with those of llama.cpp's library.
func compareMixtures(t *testing.T, source, importance string, names ...string) {
	t.Helper()
	dir := t.TempDir()
	var jobs []string
	for _, name := range names {
		jobs = append(jobs, fmt.Sprintf("%s=%d", name, llamaMixtures[name]))
	}
	libraries := filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")
	script(t, python(t, "gguf==0.19.0", "numpy==2.4.6"), "llama_quantize.py", append([]string{libraries, source, dir, importance}, jobs...)...)
	for _, name := range names {
		t.Run(name+filepath.Ext(importance), func(t *testing.T) {
			model, err := llamacpp.Open(source)
			if err != nil {
				t.Fatal(err)
			}
			defer model.Close()
			file, err := ggufplan.Read(name, func() (*hf.Checkpoint, error) { return model, nil }, importance != "")
			if err != nil {
				t.Fatal(err)
			}
			if int(file.FileType) != llamaMixtures[name] {
				t.Errorf("general.file_type is %d, want %d", file.FileType, llamaMixtures[name])
			}
			o := convert.QuantizeOptions{Convention: "gguf"}
			if importance != "" {
				o.Method = calibration.Search
				if o.Statistics, err = calibration.Read(importance); err != nil {
					t.Fatal(err)
				}
			}
			if o.Rules, err = file.Rules(); err != nil {
				t.Fatal(err)
			}
			if o.Include, err = file.Includes(); err != nil {
				t.Fatal(err)
			}
			base, err := convert.ParseRule(".", file.Format)
			if err != nil {
				t.Fatal(err)
			}
			own, err := profile.Lookup("ggml")
			if err == nil {
				o.Quantizer, err = own.Quantizer(base.Quantizer.Format)
			}
			for i := 0; err == nil && i < len(o.Rules); i++ {
				o.Rules[i].Quantizer, err = own.Quantizer(o.Rules[i].Quantizer.Format)
			}
			if err != nil {
				t.Fatal(err)
			}
			src, err := convert.Open(source)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = src.Close() })
			plan, err := convert.PlanQuantize(t.Context(), src, o)
			out := filepath.Join(dir, name+"-own.gguf")
			if err == nil {
				_, err = plan.Run(t.Context(), out, convert.RunOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			compareTensors(t, out, filepath.Join(dir, name+".gguf"))
		})
	}
}

// compareTensors compares the types and bytes of the tensors of two GGUF files.
func compareTensors(t *testing.T, got, want string) {
	t.Helper()
	a, err := gguf.Open(got)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err := gguf.Open(want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if len(a.Tensors) != len(b.Tensors) {
		t.Errorf("%d tensors, want %d", len(a.Tensors), len(b.Tensors))
	}
	for _, w := range b.Tensors {
		g, ok := a.Lookup(w.Name)
		if !ok || g.Type != w.Type {
			t.Errorf("%s is %v, want %v", w.Name, g.Type, w.Type)
			continue
		}
		x, y := make([]byte, g.Bytes()), make([]byte, w.Bytes())
		if err := a.ReadTensorAt(x, g, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.ReadTensorAt(y, w, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s, %v: other bytes", w.Name, w.Type)
		}
	}
}
