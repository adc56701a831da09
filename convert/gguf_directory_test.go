package convert

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tokenizer"
	"github.com/microscale-go/microscale/verify"
)

// smallGGUF returns a GGUF file with MXFP4 weights and a tokenizer of bytes.
func smallGGUF(t *testing.T) string {
	t.Helper()
	tensors := layerOf([]string{"input_layernorm", "post_attention_layernorm"}, false, false)
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, graphConfig("LlamaForCausalLM", "")))
	return toGGUF(t, src, quant.MXFP4)
}

// rewritten returns a copy of a GGUF file with other metadata. A key whose value becomes nil is left
// out. Tensors in others have another type, and zeros.
func rewritten(t *testing.T, path string, change map[string]any, others ...gguf.Spec) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var pairs []gguf.Pair
	for _, p := range f.Metadata {
		if value, ok := change[p.Key]; ok {
			p.Value = value
		}
		if p.Value != nil && !strings.HasPrefix(p.Key, "microscale") {
			pairs = append(pairs, p)
		}
	}
	var specs []gguf.Spec
	for _, info := range f.Tensors {
		spec := gguf.Spec{Name: info.Name, Type: info.Type, Shape: info.Shape}
		if i := slices.IndexFunc(others, func(s gguf.Spec) bool { return s.Name == info.Name }); i >= 0 {
			spec.Type = others[i].Type
		}
		specs = append(specs, spec)
	}
	l, err := gguf.NewLayout(specs, pairs)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := llamacpp.FileLayout(l)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "m.gguf")
	w, err := safetensors.Create(out, layout)
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range l.Tensors() {
		data := make([]byte, info.End-info.Begin)
		if specs[i].Type == f.Tensors[i].Type {
			err = f.ReadTensorAt(data, f.Tensors[i], 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteTensorAt(info.Name, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

const directoryNames = "config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json"

// TestGGUFDirectory dequantizes and requantizes a GGUF file to directories with configuration and
// tokenizer, in one run, in one that resumes, and by two workers.
func TestGGUFDirectory(t *testing.T) {
	path := smallGGUF(t)
	src := openGGUF(t, path)
	plan, err := PlanDequantize(t.Context(), src.Source, safetensors.F16)
	dir := runTo(t, plan, err, "decoded")
	got := openModel(t, dir)
	if config := string(got.Source.Config); names(t, dir) != directoryNames || got.Source.TorchDtype() != "float16" || strings.Contains(config,
		"quantization_config") || got.Source.Single {
		t.Errorf("got %s in %s", config, names(t, dir))
	}
	compare(t, src, got)
	tok, err := tokenizer.Parse(readFile(t, filepath.Join(dir, "tokenizer.json")))
	if err != nil || !slices.Equal(tok.Encode("aé", tokenizer.Options{}), []uint32{'a', 0xc3, 0xa9}) {
		t.Errorf("the tokenizer: %v", err)
	}
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true}
	plan, err = PlanQuantize(t.Context(), src.Source, o)
	whole := runTo(t, plan, err, "whole")
	if got := openModel(t, whole); !strings.Contains(string(got.Source.Config), `"quantization_config"`) ||
		got.Convention.Name != "compressed-tensors" || got.Quantized() != 7 || names(t, whole) != directoryNames {
		t.Errorf("got %s with %d quantized weights", got.Source.Config, got.Quantized())
	}
	compare(t, src, openModel(t, whole))
	if r, err := plan.Run(t.Context(), whole, RunOptions{Resume: true}); err != nil || !r.Finished {
		t.Errorf("a complete result: %+v, %v", r, err)
	}
	if !sameTree(t, whole, resumed(t, plan)) || !sameTree(t, whole, merged(t, plan)) {
		t.Error("a run that resumed, or two workers, wrote other files")
	}
	writeText(t, filepath.Join(whole, "tokenizer.json"), "{}")
	if _, err := plan.Run(t.Context(), whole, RunOptions{Resume: true}); err == nil || !strings.Contains(err.Error(),
		"tokenizer.json differs") {
		t.Errorf("a damaged result: %v", err)
	}
}

// runTo runs a plan and returns the destination.
func runTo(t *testing.T, plan *Plan, err error, name string) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), name)
	if err == nil {
		_, err = plan.Run(t.Context(), dst, RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

// resumed runs a plan that is interrupted once.
func resumed(t *testing.T, plan *Plan) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "resumed")
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := plan.Run(ctx, dst, RunOptions{Resume: true, Threads: 1, Progress: func(verify.Progress) { cancel() }}); err == nil {
		t.Error("the run was not interrupted")
	}
	if _, err := plan.Run(t.Context(), dst, RunOptions{Resume: true}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// merged runs a plan by two workers.
func merged(t *testing.T, plan *Plan) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "merged")
	for i := range 2 {
		part, err := plan.Worker(i, 2)
		if err == nil {
			_, err = part.Run(t.Context(), dst, RunOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Merge(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestGGUFFile writes the weights of a GGUF file alone, and those of an unknown architecture to no other
// destination.
func TestGGUFFile(t *testing.T) {
	path := smallGGUF(t)
	alone := openGGUF(t, path)
	alone.Source.Config = nil
	plan, err := PlanDequantize(t.Context(), alone.Source, safetensors.F32)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weights.safetensors")
	if _, err := plan.Run(t.Context(), file, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	compare(t, openGGUF(t, path), openModel(t, file))
	other := openGGUF(t, rewritten(t, path, map[string]any{"general.architecture": "t5"}))
	if plan, err = PlanDequantize(t.Context(), other.Source, safetensors.F32); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	const want = `config.json cannot be written for the architecture "t5" of llama.cpp: choose a destination that ends in .safetensors`
	for _, err := range []error{plan.Admit(dir, false), second(plan.Run(t.Context(), dir, RunOptions{}))} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if _, err := plan.Run(t.Context(), dir+".safetensors", RunOptions{}); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestGGUFNotCompared: verify says of an unquantized GGUF file what it does not compare.
func TestGGUFNotCompared(t *testing.T) {
	tensors := layerOf([]string{"input_layernorm", "post_attention_layernorm"}, false, false)
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, graphConfig("LlamaForCausalLM", "")))
	report := compare(t, src, openGGUF(t, toGGUF(t, src, quant.BF16)))
	if !slices.Equal(report.NotCompared, []string{"metadata and tokenizer: only weights are compared"}) {
		t.Errorf("got %q", report.NotCompared)
	}
}

// TestGGUFLarger requantizes a file whose embeddings are quantized, which no default keeps so: that the
// result is larger is a note, not an error.
func TestGGUFLarger(t *testing.T) {
	src := openGGUF(t, rewritten(t, smallGGUF(t), nil, gguf.Spec{Name: "token_embd.weight", Type: gguf.Q8_0}))
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Requantize: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Notes) == 0 || !strings.Contains(plan.Notes[0], "the result is larger than its source") ||
		plan.Convention != "compressed-tensors" {
		t.Errorf("got %s with the notes %q", plan.Convention, plan.Notes)
	}
}

// TestGGUFWithoutParameter checks that the error of a file without a parameter of config.json comes before
// the run.
func TestGGUFWithoutParameter(t *testing.T) {
	for key, want := range map[string]string{"llama.block_count": "the metadata have no llama.block_count, which is num_hidden_layers in " +
		"config.json: fetch it again",
		"llama.attention.layer_norm_rms_epsilon": "which is rms_norm_eps in config.json"} {
		src := openGGUF(t, rewritten(t, smallGGUF(t), map[string]any{key: nil}))
		if _, err := PlanDequantize(t.Context(), src.Source, safetensors.F32); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		src.Source.Config = nil
		if _, err := PlanDequantize(t.Context(), src.Source, safetensors.F32); err != nil {
			t.Errorf("the weights alone: %v", err)
		}
	}
}

// TestGGUFWithoutTokenizer writes directories without tokenizer for files that describe none, with a
// note that says why.
func TestGGUFWithoutTokenizer(t *testing.T) {
	path := smallGGUF(t)
	for _, c := range []struct {
		change map[string]any
		want   string
	}{
		{map[string]any{"tokenizer.ggml.merges": nil}, "tokenizer.ggml.merges is missing"},
		{map[string]any{"tokenizer.ggml.token_type": []int32{1, 1}}, "got 2 types for 256 tokens"},
		{map[string]any{"tokenizer.ggml.tokens": make([]string, 300)}, "the GGUF file has 300 tokens, and embeddings of 256"},
		{map[string]any{"tokenizer.ggml.pre": "unheard-of"}, `pre-tokenizer "unheard-of" is not known`},
		{map[string]any{"tokenizer.ggml.model": "none"}, "the GGUF file has none"},
		{map[string]any{"tokenizer.ggml.model": nil}, "the GGUF file has none"},
	} {
		src := openGGUF(t, rewritten(t, path, c.change))
		plan, err := PlanDequantize(t.Context(), src.Source, safetensors.BF16)
		dir := runTo(t, plan, err, "decoded")
		if notes := strings.Join(plan.Notes, "; "); !strings.Contains(notes, "the result has no tokenizer (") || !strings.Contains(notes,
			c.want) {
			t.Errorf("%v: got the notes %q", c.change, notes)
		}
		if got := names(t, dir); got != "config.json generation_config.json model.safetensors" {
			t.Errorf("%v: got %s", c.change, got)
		}
	}
}

// TestGGUFSource quantizes a GGUF file to another, with the tensors of the way through a directory.
func TestGGUFSource(t *testing.T) {
	path := toGGUF(t, openSample(t), quant.BF16)
	src := openGGUF(t, path)
	plan, err := PlanDequantize(t.Context(), src.Source, safetensors.BF16)
	dir := runTo(t, plan, err, "directory")
	var files [][2]any
	for _, m := range []*checkpoint.Model{src, openModel(t, dir)} {
		plan, err := PlanQuantize(t.Context(), m.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "gguf"})
		types, data, _ := ggufTensors(t, runTo(t, plan, err, "mxfp4.gguf"))
		files = append(files, [2]any{types, data})
	}
	if !reflect.DeepEqual(files[0], files[1]) {
		t.Error("the file differs from that of the directory")
	}
	alone := filepath.Join(dir, "model.safetensors")
	if _, err := PlanQuantize(t.Context(), openModel(t, alone).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
		Convention: "gguf"}); err == nil || !strings.Contains(err.Error(), "config.json is missing") {
		t.Errorf("weights alone: %v", err)
	}
}
