package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// TestForeign: the errors for adapters, and for quantized weights without a configuration, name
// what the files are and the remedy.
func TestForeign(t *testing.T) {
	const module = "model.layers.0.self_attn.q_proj"
	plain := made{"model.layers.0.mlp.up_proj.weight", safetensors.BF16, 1, []int64{64, 64}}
	peft := func(suffix string) made {
		return made{"base_model.model." + module + suffix, safetensors.BF16, 1, []int64{32, 64}}
	}
	const adapter = "not a model: merge it into its base model"
	for _, tc := range []struct {
		name, want string
		tensors    []made
	}{
		{"LoRA", adapter, []made{peft(".lora_A.weight"), peft(".lora_B.weight")}},
		{"LoRA of diffusers", adapter, []made{{"unet.down.lora_down.weight", safetensors.BF16, 1, []int64{32, 64}},
			{"unet.down.lora_up.weight", safetensors.BF16, 1, []int64{64, 32}}}},
		{"LoRA with modules of its own", adapter, []made{peft(".lora_A.weight"), {"base_model.model.lm_head.weight", safetensors.BF16, 1,
			[]int64{64, 64}}}},
		{"IA3", adapter, []made{peft(".ia3_l")}},
		{"LoHa", adapter, []made{peft(".hada_w1_a")}},
		{"prompt tuning", adapter, []made{{"prompt_embeddings", safetensors.BF16, 1, []int64{32, 64}}}},
		{"GPTQ", "already quantized by GPTQ or AWQ (" + module + ".qweight), which is not supported: start from the original checkpoint",
			[]made{plain, {module + ".qweight", safetensors.I32, 1, []int64{8, 64}}}},
		{"bitsandbytes, 8 bits", "already quantized by bitsandbytes (" + module + ".SCB)",
			[]made{plain, {module + ".weight", safetensors.I8, 1, []int64{64, 64}}, {module + ".SCB", safetensors.F32, 1, []int64{64}}}},
		{"bitsandbytes, 4 bits", "already quantized by bitsandbytes (" + module + ".weight.absmax)",
			[]made{plain, {module + ".weight", safetensors.U8, 1, []int64{2048, 1}}, {module + ".weight.absmax", safetensors.U8, 1, []int64{64}}}},
		{"HQQ", "already quantized by HQQ (" + module + ".W_q)", []made{plain, {module + ".W_q", safetensors.U8, 1, []int64{64, 32}}}},
	} {
		src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tc.tensors}, `{"model_type": "llama"}`))
		for _, c := range []string{"", "gguf"} {
			if _, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
				Convention: c}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
			}
		}
	}
}

// TestAdapterWithin: adapters beside the weights of a model are copied.
func TestAdapterWithin(t *testing.T) {
	const module = "model.layers.0.mlp.up_proj"
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{module + ".base_layer.weight", safetensors.BF16, 1, []int64{64, 64}}, {module + ".lora_A.speech.weight", safetensors.BF16, 1,
			[]int64{32, 64}},
	}}, `{"model_type": "phi4mm"}`))
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}})
	if err != nil || plan.Count(Quantize) != 1 || plan.decisions[1].reason != (Reason{causeRole, "adapter"}) {
		t.Errorf("%v, %+v", err, plan)
	}
}

// TestLarger: if the default convention cannot store another format of experts that are in
// MXFP4, they would become BF16 and the result would be larger than its source. That is an
// error with a remedy.
func TestLarger(t *testing.T) {
	const parent = "model.layers.0.mlp.experts."
	original := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{parent + "gate_up_proj", safetensors.BF16, 0.1, []int64{3, 64, 128}},
		{parent + "down_proj", safetensors.BF16, 0.1, []int64{3, 64, 64}},
		{"model.layers.0.self_attn.q_proj.weight", safetensors.BF16, 0.1, []int64{64, 64}},
	}}, `{"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 1, "torch_dtype": "bfloat16"}`))
	dir := filepath.Join(t.TempDir(), "mxfp4")
	quantize(t, original, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}}, RunOptions{})
	src := openModel(t, dir)

	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Requantize: true}
	_, err := PlanQuantize(t.Context(), src.Source, o)
	for _, want := range []string{"the result is larger than its source: 27776 bytes of tensors become ",
		"because quantized weights (2) become bf16", "fused experts with biases",
		"convention plain stores them in nvfp4; or choose convention compressed-tensors explicitly"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	o.Convention = "compressed-tensors"
	plan, err := PlanQuantize(t.Context(), src.Source, o)
	if err != nil || !strings.HasPrefix(plan.Notes[0], "the result is larger than its source") {
		t.Errorf("error %v, plan %+v", err, plan)
	}
	o.Convention = "plain"
	if plan, err = PlanQuantize(t.Context(), src.Source, o); err != nil || plan.Count(Quantize) != 3 || slices.ContainsFunc(plan.Notes,
		func(n string) bool { return strings.Contains(n, "larger") }) {
		t.Errorf("error %v, plan %+v", err, plan)
	}

	// If the user asks for more bits per element, a note is enough.
	o = QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true, Convention: "plain"}
	if plan, err = PlanQuantize(t.Context(), src.Source, o); err != nil || !strings.HasPrefix(plan.Notes[0],
		"the result is larger than its source") || strings.Contains(plan.Notes[0], "because") {
		t.Errorf("error %v, plan %+v", err, plan)
	}
}

// TestGGUFTypes: the error for a quantized GGUF file names the types of its tensors.
func TestGGUFTypes(t *testing.T) {
	for _, tc := range []struct {
		types []gguf.Type
		want  string
	}{
		{[]gguf.Type{gguf.Q8_0}, "(gguf, q8_0): start from"},
		{[]gguf.Type{typeNamed(t, "Q4_1"), typeNamed(t, "Q4_1"), gguf.Q8_0}, "(gguf, q4_1, q8_0): start from"},
		{[]gguf.Type{typeNamed(t, "Q4_1")}, "(gguf, q4_1): start from"},
		{[]gguf.Type{typeNamed(t, "Q6_K"), typeNamed(t, "Q4_K"), typeNamed(t, "Q4_K")}, "(gguf, q4_k, q6_k): start from"},
		{[]gguf.Type{typeNamed(t, "Q1_0")}, "(gguf, q1_0), in unsupported types: start from"},
		{[]gguf.Type{typeNamed(t, "Q1_0"), typeNamed(t, "Q4_K"), typeNamed(t, "Q4_K")}, "(gguf, q4_k, q1_0), in unsupported types"},
	} {
		var specs []gguf.Spec
		for i, ggml := range tc.types {
			specs = append(specs, gguf.Spec{Name: fmt.Sprintf("blk.%d.ffn_up.weight", i), Type: ggml, Shape: []int64{4, 256}})
		}
		l, err := gguf.NewLayout(specs, []gguf.Pair{{Key: "general.architecture", Value: "llama"}})
		if err != nil {
			t.Fatal(err)
		}
		file := make([]byte, l.FileSize())
		copy(file, l.HeaderBytes())
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := PlanQuantize(t.Context(), c, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: error %v, want %q", tc.types, err, tc.want)
		}
	}
}

// TestGGUFDecoded: types of llama.cpp that are decoded as they are read become values of dequantize, and
// with Requantize those that quantize starts from.
func TestGGUFDecoded(t *testing.T) {
	l, err := gguf.NewLayout([]gguf.Spec{{Name: "blk.0.ffn_up.weight", Type: typeNamed(t, "Q4_K"), Shape: []int64{4, 256}}},
		[]gguf.Pair{{Key: "general.architecture", Value: "llama"}})
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, l.FileSize())
	for i := range file {
		file[i] = byte(i * i >> 4)
	}
	copy(file, l.HeaderBytes())
	raw := file[len(file)-4*144:]
	for i := 0; i < len(raw); i += 144 {
		copy(raw[i:], []byte{0, 0x3c, 0, 0x34}) // d = 1, dmin = 1/4
	}
	q, err := ggml.LookupQuant("Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, 4*256)
	q.Decode(want, raw)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, file, 0o666); err != nil {
		t.Fatal(err)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const name = "model.layers.0.mlp.up_proj.weight"
	read := func(plan *Plan, err error) []float32 {
		t.Helper()
		dst := filepath.Join(t.TempDir(), "m.safetensors")
		if err == nil {
			_, err = plan.Run(t.Context(), dst, RunOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		result, err := hf.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		defer result.Close()
		w, _ := checkpoint.Read(result).Lookup(name)
		x, err := w.Read(0, 4)
		if err != nil {
			t.Fatal(err)
		}
		return x.Data
	}
	if got := read(PlanDequantize(t.Context(), c, safetensors.F32)); !slices.Equal(got, want) {
		t.Error("dequantize writes other values than the file has")
	}
	plan, err := PlanDequantize(t.Context(), c, safetensors.BF16)
	if err != nil || plan.Count(Decode) != 1 {
		t.Errorf("dequantize to BF16: error %v, plan %+v", err, plan)
	}
	again, err := quant.Quantizer{Format: quant.MXFP8}.Rowwise(tensor.Of(4, 256, want), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true}
	if got := read(PlanQuantize(t.Context(), c, o)); !slices.Equal(got, again.Dequantize(1).Data) {
		t.Error("quantize starts from other values than the file has")
	}
	if _, err := PlanRelabel(t.Context(), c, "compressed-tensors", "", nil); err == nil ||
		!strings.Contains(err.Error(), "its weights are q4_k, which no convention stores") {
		t.Errorf("relabel: got %v", err)
	}
}

// typeNamed returns the type of a name.
func typeNamed(t *testing.T, name string) gguf.Type {
	t.Helper()
	for i := range 64 {
		if gguf.Type(i).String() == name {
			return gguf.Type(i)
		}
	}
	t.Fatalf("no type is called %s", name)
	return 0
}
