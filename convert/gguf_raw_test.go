package convert

import (
	"bytes"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// ggufTensors returns the types and bytes of the tensors of a GGUF file, and its metadata but those of its types.
func ggufTensors(t *testing.T, path string) (types map[string]string, data map[string][]byte, metadata []gguf.Pair) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	types, data = map[string]string{}, map[string][]byte{}
	for _, info := range f.Tensors {
		b := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(b, info, 0); err != nil {
			t.Fatal(err)
		}
		types[info.Name], data[info.Name] = info.Type.String(), b
	}
	for _, p := range f.Metadata {
		if p.Key != "general.file_type" && !strings.HasPrefix(p.Key, "microscale") {
			metadata = append(metadata, p)
		}
	}
	return types, data, metadata
}

// planFile plans the quantization of a GGUF file to another.
func planFile(t *testing.T, path string, o QuantizeOptions) (*Plan, error) {
	t.Helper()
	o.Convention = "gguf"
	return PlanQuantize(t.Context(), openGGUF(t, path).Source, o)
}

// TestGGUFExpertsSource: a file with experts becomes that of its checkpoint, also with rules by names of the checkpoint, of tensors of
// all experts and of GGUF. A checkpoint is never needed, so that the architecture may be any.
func TestGGUFExpertsSource(t *testing.T) {
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	rule := func(pattern string, f quant.Format) Rule {
		return Rule{Pattern: regexp.MustCompile(pattern), Quantizer: quant.Quantizer{Format: f}}
	}
	path := toGGUF(t, src, quant.BF16)
	foreign := rewritten(t, path, map[string]any{"general.architecture": "unheard-of"})
	nvfp4 := quant.Quantizer{Format: quant.NVFP4}
	for name, c := range map[string]struct {
		o       QuantizeOptions
		foreign bool // its patterns are of names of the file
	}{
		"nvfp4":  {QuantizeOptions{Quantizer: nvfp4}, true},
		"names":  {QuantizeOptions{Quantizer: nvfp4, Rules: []Rule{rule(`experts\.\d\.w2`, quant.MXFP4)}}, false},
		"file":   {QuantizeOptions{Quantizer: nvfp4, Rules: []Rule{rule(`down_exps`, quant.MXFP4), rule(`attn_v`, quant.Q8_0)}}, true},
		"stack":  {QuantizeOptions{Quantizer: nvfp4, Exclude: []*regexp.Regexp{regexp.MustCompile(`up_exps\.weight$`)}}, true},
		"single": {QuantizeOptions{Rules: []Rule{rule(`^blk\.0\.attn_q\.weight$`, quant.MXFP4)}}, true},
	} {
		plan, err := planFile(t, path, c.o)
		got := runTo(t, plan, err, "got.gguf")
		types, data, metadata := ggufTensors(t, got)
		if _, _, want := ggufTensors(t, path); !reflect.DeepEqual(metadata, want) {
			t.Errorf("%s: other metadata: %v", name, metadata)
		}
		if name == "nvfp4" {
			wantTypes, want, _ := ggufTensors(t, toGGUF(t, src, quant.NVFP4))
			if !reflect.DeepEqual(types, wantTypes) || !reflect.DeepEqual(data, want) {
				t.Errorf("the way through the checkpoint has other tensors: %v", types)
			}
		}
		for tensor, want := range map[string]map[string]string{
			"blk.0.ffn_down_exps.weight": {"names": "MXFP4", "file": "MXFP4", "single": "BF16"},
			"blk.0.ffn_up_exps.weight":   {"stack": "BF16", "single": "BF16"},
			"blk.0.attn_v.weight":        {"file": "Q8_0", "single": "BF16"},
			"blk.0.attn_q.weight":        {"single": "MXFP4"},
			"token_embd.weight":          {"nvfp4": "BF16", "names": "BF16", "file": "BF16", "stack": "BF16", "single": "BF16"},
			"blk.0.ffn_gate_inp.weight":  {"nvfp4": "F32", "names": "F32", "file": "F32", "stack": "F32", "single": "F32"},
		} {
			if w := want[name]; w == "" && types[tensor] != "NVFP4" || w != "" && types[tensor] != w {
				t.Errorf("%s: %s is %s, want %s", name, tensor, types[tensor], w)
			}
		}
		if !c.foreign {
			continue
		}
		plan, err = planFile(t, foreign, c.o)
		if name != "single" { // no graph of that name is known to apply the global scales of NVFP4
			if err == nil || !strings.Contains(err.Error(), "ignores global scales of nvfp4 in unheard-of") {
				t.Errorf("%s: an unknown architecture: %v", name, err)
			}
			continue
		}
		foreignTypes, foreignData, _ := ggufTensors(t, runTo(t, plan, err, "foreign.gguf"))
		if !reflect.DeepEqual(foreignTypes, types) || !reflect.DeepEqual(foreignData, data) {
			t.Errorf("%s: the file of an unknown architecture has other tensors: %v", name, foreignTypes)
		}
	}
	if _, err := planFile(t, path, QuantizeOptions{Rules: []Rule{rule("mlp", quant.MXFP4)}}); err == nil || !strings.Contains(err.Error(),
		"matches no weight") {
		t.Errorf("a pattern of no name: %v", err)
	}
}

// TestGGUFRequantize: a quantized file is an error without Requantize. With it, tensors that stay as they are keep their type and bytes,
// whether their types are block formats or only decoded, and plans as files, resumed runs and workers lead to the same file.
func TestGGUFRequantize(t *testing.T) {
	q4 := rewritten(t, smallGGUF(t), nil, gguf.Spec{Name: "blk.0.ffn_up.weight", Type: 2}, gguf.Spec{Name: "token_embd.weight",
		Type: gguf.Q8_0}, gguf.Spec{Name: "blk.0.attn_v.weight", Type: gguf.F16})
	o := QuantizeOptions{Rules: []Rule{{Pattern: regexp.MustCompile("attn_[qv]"), Quantizer: quant.Quantizer{Format: quant.NVFP4}}}}
	if _, err := planFile(t, q4, o); err == nil || !strings.Contains(err.Error(), "already quantized") {
		t.Errorf("without Requantize: %v", err)
	}
	o.Requantize = true
	plan, err := planFile(t, q4, o)
	path := runTo(t, plan, err, "whole.gguf")
	beforeTypes, before, _ := ggufTensors(t, q4)
	types, after, _ := ggufTensors(t, path)
	for name, b := range before {
		if want := strings.Contains(name, "attn_q") || strings.Contains(name, "attn_v"); want && types[name] != "NVFP4" ||
			!want && (types[name] != beforeTypes[name] || !bytes.Equal(after[name], b)) {
			t.Errorf("%s: from %s to %s", name, beforeTypes[name], types[name])
		}
	}
	if len(after) != len(before)+2 {
		t.Errorf("%d tensors, want two scales more than %d", len(after), len(before))
	}
	if !bytes.Equal(readFile(t, path), readFile(t, resumed(t, plan))) {
		t.Error("a run that resumed wrote another file")
	}
	file := filepath.Join(t.TempDir(), "plan.toml")
	if err := plan.WritePlanFile(file, nil); err != nil {
		t.Fatal(err)
	}
	read, err := ReadPlanFile(file)
	if err != nil || read.FileType != 0 {
		t.Fatal(read, err)
	}
	mixed := o
	mixed.FileType = 15
	if plan, err = planFile(t, q4, mixed); err != nil || !strings.Contains(string(plan.PlanFile(nil)), "\nfile_type = 15\n") {
		t.Errorf("no type of a mixture: %v", err)
	}
	if o.Rules, err = read.Rules(); err != nil {
		t.Fatal(err)
	}
	again, err := planFile(t, q4, o)
	if !bytes.Equal(readFile(t, path), readFile(t, runTo(t, again, err, "again.gguf"))) {
		t.Errorf("the plan as a file leads to another file:\n%s", plan.PlanFile(nil))
	}
	plan, err = planFile(t, q4, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.BF16}, Requantize: true})
	types, _, _ = ggufTensors(t, runTo(t, plan, err, "bf16.gguf"))
	for name, kind := range types {
		if want := len(before[name]) > 1024; want != (kind == "BF16") && !strings.Contains(name, "token_embd") {
			t.Errorf("bf16: %s is %s", name, kind)
		}
	}
	if got := openGGUF(t, path); len(got.Problems) > 0 || !slices.ContainsFunc(got.Weights, func(w *checkpoint.Weight) bool {
		return w.FormatName() == "nvfp4"
	}) {
		t.Errorf("problems %v", got.Problems)
	}
}

// TestGGUFEncoded: weights in K-quants and the types before them have the blocks of package ggml, from a checkpoint and from a GGUF file,
// which have other orders of rows; weights with other columns fall back as llama-quantize chooses; other conventions have no such types.
func TestGGUFEncoded(t *testing.T) {
	config := strings.ReplaceAll(graphConfig("LlamaForCausalLM", ""), `"intermediate_size": 64`, `"intermediate_size": 256`)
	var tensors []made
	for _, m := range layerOf([]string{"input_layernorm", "post_attention_layernorm"}, false, false) {
		for i, n := range m.shape {
			if n == 64 {
				m.shape[i] = 256
			}
		}
		tensors = append(tensors, m)
	}
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, config))
	path := toGGUF(t, src, quant.BF16)
	file := openGGUF(t, path)
	o := QuantizeOptions{Convention: "gguf", Include: []*regexp.Regexp{regexp.MustCompile(`token_embd|embed_tokens`)}}
	for _, r := range [][2]string{{`attn_v|v_proj`, "Q4_1"}, {`attn_k|k_proj`, "q4_0"}, {`token_embd|embed_tokens`, "q5_1"}, {`.`, "q6_k"}} {
		rule, err := ParseRule(r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		o.Rules = append(o.Rules, rule)
	}
	want := map[string]string{"attn_v": "Q4_1", "attn_k": "Q4_0", "token_embd": "Q5_1", "attn_q": "Q8_0", "attn_output": "Q8_0",
		"ffn_gate": "Q8_0", "ffn_up": "Q8_0", "ffn_down": "Q6_K"}
	var first map[string][]byte
	for _, m := range []*checkpoint.Model{src, file} {
		plan, err := PlanQuantize(t.Context(), m.Source, o)
		got := runTo(t, plan, err, "got.gguf")
		types, data, _ := ggufTensors(t, got)
		if first == nil {
			first = data
		}
		if !reflect.DeepEqual(data, first) {
			t.Error("the file from GGUF has other blocks than that from the checkpoint")
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		for module, kind := range want {
			name := "blk.0." + module + ".weight"
			if module == "token_embd" {
				name = module + ".weight"
			}
			if types[name] != kind {
				t.Errorf("%s is %s, want %s", name, types[name], kind)
			}
			q, err := ggml.LookupQuant(kind)
			if err != nil || kind == "Q8_0" {
				continue
			}
			info, _ := f.Lookup(name)
			raw := make([]byte, info.Bytes())
			if err := f.ReadTensorAt(raw, info, 0); err != nil {
				t.Fatal(err)
			}
			cols := int(info.Shape[1])
			x := tensor.OfBF16(int(info.Shape[0]), cols, raw).Dense()
			blocks := make([]byte, len(x.Data)/q.Elements*q.Bytes)
			for i := range x.Rows {
				size := cols / q.Elements * q.Bytes
				q.Encode(blocks[i*size:(i+1)*size], x.Row(i), nil)
			}
			if !bytes.Equal(blocks, data[name]) {
				t.Errorf("%s has other blocks than those of its rows", name)
			}
		}
		report, err := verify.Compare(t.Context(), m.Source, openGGUF(t, got).Source, verify.Options{})
		if err != nil || !report.OK() {
			t.Errorf("%v (%v)", report.Problems, err)
		}
		if !bytes.Equal(readFile(t, got), readFile(t, resumed(t, plan))) {
			t.Error("a run that resumed wrote another file")
		}
	}
	o.Convention = ""
	if _, err := PlanQuantize(t.Context(), src.Source, o); err == nil || !strings.Contains(err.Error(), "a type of GGUF files: choose") {
		t.Errorf("a directory: %v", err)
	}
}
