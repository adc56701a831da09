package convert

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// oddModel is as wide as 1.5 blocks of 128: the inputs of up_proj have a partial block, those of down_proj none.
func oddModel(t *testing.T) *checkpoint.Model {
	return openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"model.embed_tokens.weight", safetensors.BF16, 1, []int64{64, 192}},
		{"lm_head.weight", safetensors.BF16, 1, []int64{64, 192}},
		{"model.layers.0.mlp.up_proj.weight", safetensors.BF16, 1, []int64{200, 192}},
		{"model.layers.0.mlp.down_proj.weight", safetensors.BF16, 1, []int64{192, 256}},
	}}, `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 192}`))
}

// TestPartialBlocks: FP8 blocks that are partial at the end of a row are written for clients that decode them, without zeros,
// and read as the quantizer's codes; for other clients their weights stay unquantized.
func TestPartialBlocks(t *testing.T) {
	src := oddModel(t)
	for _, tc := range []struct {
		client, scheme string
		format         string // of up_proj
	}{
		{"transformers", "FP8_BLOCK_A16", "fp8-block128"},
		{"vllm", "FP8_BLOCK", "bf16"},
		{"sglang", "FP8_BLOCK", "bf16"},
	} {
		dst := filepath.Join(t.TempDir(), "dst")
		plan, _ := quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.FP8Block}, Client: tc.client}, RunOptions{})
		if noted := strings.Contains(strings.Join(plan.Notes, "\n"), "1 of 4 weights, with 76800 of 224256 bytes, are not quantized, the "+
			"first model.layers.0.mlp.up_proj.weight: "+
			"192 columns are not a multiple of 128; scheme FP8_BLOCK_A16 quantizes them"); plan.Scheme != tc.scheme ||
			noted != (tc.format == "bf16") {
			t.Errorf("%s: scheme %s, notes %q", tc.client, plan.Scheme, plan.Notes)
		}
		got := openModel(t, dst)
		w, ok := got.Lookup("model.layers.0.mlp.up_proj.weight")
		if !ok || w.FormatName() != tc.format {
			t.Fatalf("%s: up_proj is in %v", tc.client, w)
		}
		compare(t, src, got)
		if tc.format == "bf16" {
			continue
		}
		if part, _ := w.Part(checkpoint.Codes); part.Dtype != safetensors.F8E4M3 || len(part.Shape) != 2 || part.Shape[1] != 192 {
			t.Errorf("its codes are %s %v, want 192 columns", part.Dtype, part.Shape)
		}
		from, _ := src.Lookup(w.Name)
		whole := checkpoint.Tile{To: 200, ToCol: 192}
		x, err := from.ReadTile(whole)
		if err != nil {
			t.Fatal(err)
		}
		q, err := quant.Quantizer{Format: quant.FP8Block}.Rowwise(x, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		codes, err := w.ReadCodes(whole)
		if err != nil || string(codes.Codes) != string(q.Codes) || string(codes.ScaleBytes()) != string(q.ScaleBytes()) {
			t.Errorf("its codes or scales are not the quantizer's (%v)", err)
		}
	}
}

// TestColumnsLeft: what is not quantized only for its number of columns is noted, with formats that would be.
func TestColumnsLeft(t *testing.T) {
	odd, narrow := oddModel(t), qwen(t, 3, 224)
	for _, tc := range []struct {
		src        *checkpoint.Model
		format     quant.Format
		convention string
		want       string // "": no note
	}{
		{odd, quant.NVFP4, "compressed-tensors", ""},
		{odd, quant.FP8Block, "deepseek", "192 columns are not a multiple of 128; no format of convention deepseek has such rows"},
		{odd, quant.FP8Block, "plain", ""},
		{narrow, quant.NVFP4, "gguf", "the first model.layers.0.mlp.down_proj.weight: 224 columns are not a multiple of 64, as block_nvfp4 " +
			"has them; they can be in mxfp4, q8_0"},
		{narrow, quant.MXFP4, "gguf", ""},
	} {
		src := tc.src
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format},
			Convention: tc.convention})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(withLeft(plan.Notes), "\n"); (notes == "") != (tc.want == "") || !strings.HasSuffix(notes, tc.want) {
			t.Errorf("%s in %s: notes %q, want %q", tc.format, tc.convention, notes, tc.want)
		}
	}
}

func withLeft(notes []string) (left []string) {
	for _, n := range notes {
		if strings.Contains(n, "are not quantized") {
			left = append(left, n)
		}
	}
	return left
}

// TestDimensions: what is no matrix says its number of dimensions.
func TestDimensions(t *testing.T) {
	for n, want := range map[int]string{1: "has 1 dimension", 3: "has 3 dimensions"} {
		if got := dimensions(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
