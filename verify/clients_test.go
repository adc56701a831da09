package verify_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// attention is a checkpoint with siblings of the given sizes.
func attention(t *testing.T, rows, cols int64) string {
	t.Helper()
	d := &directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "llama", "torch_dtype": "bfloat16"}}
	for i, name := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"} {
		d.set("model.layers.0."+name+".weight", safetensors.BF16, []int64{rows, cols}, values(t, uint64(i), int(rows*cols)))
	}
	d.set("lm_head.weight", safetensors.BF16, []int64{rows, cols}, values(t, 99, int(rows*cols)))
	dir := t.TempDir()
	d.write(t, dir)
	return dir
}

// stored quantizes a checkpoint by a scheme.
func stored(t *testing.T, src *checkpoint.Model, f quant.Format, convention, scheme string) string {
	t.Helper()
	c, err := checkpoint.LookupConvention(convention)
	if err != nil {
		t.Fatal(err)
	}
	o := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: convention, Scheme: scheme}
	if only, err := c.With(f, scheme); err == nil {
		if _, a := only.Scheme(f); a == checkpoint.Static {
			o.Calibration = &convert.Calibration{ConstantInputs: true}
		}
	}
	plan, err := convert.PlanQuantize(t.Context(), src.Source, o)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestClientsRead: which schemes of sound checkpoints each client reads.
func TestClientsRead(t *testing.T) {
	src := open(t, attention(t, 128, 128))
	for _, tc := range []struct {
		format     quant.Format
		convention string
		scheme     string
		clients    string
	}{
		{quant.MXFP8, "compressed-tensors", "MXFP8", "vllm transformers"},
		{quant.MXFP4, "compressed-tensors", "MXFP4A16", "vllm trtllm transformers"},
		{quant.NVFP4, "compressed-tensors", "NVFP4A16", "vllm sglang transformers llamacpp ollama"},
		{quant.NVFP4, "compressed-tensors", "NVFP4", "vllm sglang trtllm transformers llamacpp ollama"},
		{quant.FP8Tensor, "compressed-tensors", "FP8", "vllm sglang transformers"},
		{quant.FP8Row, "compressed-tensors", "FP8_DYNAMIC", "vllm sglang trtllm transformers llamacpp"},
		{quant.FP8Block, "compressed-tensors", "FP8_BLOCK", "vllm sglang trtllm transformers llamacpp"},
		{quant.NVFP4, "modelopt", "NVFP4", "vllm sglang trtllm llamacpp ollama"},
		{quant.FP8Block, "modelopt", "fp8_pb_wo", "vllm trtllm"},
		{quant.MXFP8, "modelopt", "MXFP8", "vllm sglang"},
		{quant.FP8Block, "deepseek", "FP8", "vllm sglang trtllm transformers llamacpp ollama"},
		{quant.MXFP8, "mxfp8", "MXFP8", "transformers"},
		{quant.MXFP4, "quark", "fp4", "vllm sglang"},
		{quant.MXFP6E2M3, "quark", "fp6_e2m3", "vllm"},
		{quant.MXFP8, "mlx", "mxfp8", "mlx ollama"},
		{quant.NVFP4, "mlx", "nvfp4", "mlx ollama"},
		{quant.MXFP8, "plain", "", ""},
	} {
		dst := open(t, stored(t, src, tc.format, tc.convention, tc.scheme))
		if len(dst.Problems) > 0 {
			t.Errorf("%s %s: %v", tc.convention, tc.scheme, dst.Problems)
		}
		var readers []string
		for _, c := range client.All() {
			if problems := c.Rejects(dst); len(problems) == 0 {
				readers = append(readers, c.Name)
			} else if text := problems[0].Text; !strings.HasPrefix(text, c.Name+": it does not read "+tc.convention) && !strings.HasPrefix(text,
				c.Name+": the client reads mxfp4 in experts only") {
				t.Errorf("%s %s: %s", tc.convention, tc.scheme, problems[0])
			}
		}
		if got := strings.Join(readers, " "); got != tc.clients {
			t.Errorf("%s %s is read by %q, want %q", tc.convention, tc.scheme, got, tc.clients)
		}
	}
}

// TestClientRules: each damage is valid in the convention, but a client rejects or misreads it.
func TestClientRules(t *testing.T) {
	const layer = "model.layers.0."
	for _, tc := range []struct {
		name       string
		rows, cols int64
		format     quant.Format
		convention string
		scheme     string
		damage     func(*directory)
		client     string
		want       string
	}{
		{"siblings of other global scales", 32, 128, quant.NVFP4, "compressed-tensors", "NVFP4A16", func(d *directory) {
			e := d.tensors[layer+"self_attn.k_proj.weight_global_scale"]
			binary.LittleEndian.PutUint32(e.data, math.Float32bits(512))
		}, "vllm", layer + "self_attn.k_proj.weight: vllm: its global scale is 0.001953125 and that of " + layer + "self_attn.q_proj.weight is"},
		{"a sibling that is not quantized", 32, 128, quant.MXFP8, "modelopt", "MXFP8", func(d *directory) {
			d.set(layer+"mlp.up_proj.weight", safetensors.BF16, []int64{32, 128}, values(t, 1, 32*128))
			delete(d.tensors, layer+"mlp.up_proj.weight_scale")
			d.quantization()["ignore"] = []any{"lm_head", layer + "mlp.up_proj"}
		}, "sglang", layer + "mlp.up_proj.weight: sglang: it is bf16 and " + layer + "mlp.gate_proj.weight is mxfp8, and the client fuses " +
			"them into one module"},
		{"rows that blocks do not divide", 160, 128, quant.FP8Block, "deepseek", "FP8", nil,
			"vllm", layer + "self_attn.q_proj.weight: vllm: it has 160 rows, not a multiple of 128, and the client fuses it with others"},
		{"a tied head that is not on the list", 32, 128, quant.MXFP8, "compressed-tensors", "MXFP8", func(d *directory) {
			delete(d.tensors, "lm_head.weight")
			d.quantization()["ignore"] = []any{}
		}, "transformers", "lm_head: transformers: the client builds it quantized, because it is not on the ignore list"},
		{"names of the files in an adapter", 32, 128, quant.MXFP8, "compressed-tensors", "MXFP8", func(d *directory) {
			d.set("multi_modal_projector.linear_1.weight", safetensors.BF16, []int64{32, 128}, values(t, 1, 32*128))
			d.config["model_type"] = "llava"
			d.quantization()["ignore"] = []any{"lm_head", "multi_modal_projector.linear_1"}
		}, "transformers", "multi_modal_projector.linear_1.weight: transformers: the client calls it model.multi_modal_projector.linear_1 " +
			"and builds it quantized"},
		{"rows that scales do not share evenly", 192, 128, quant.FP8Block, "deepseek", "FP8", nil,
			"transformers", layer + "self_attn.q_proj.weight: transformers: it has 192 rows, not a multiple of 128, and without a GPU"},
		{"mxfp4 outside of experts", 32, 128, quant.MXFP4, "compressed-tensors", "MXFP4", nil,
			"sglang", layer + "self_attn.q_proj.weight: sglang: the client reads mxfp4 in experts only"},
		{"a parent on the list", 32, 128, quant.FP8Row, "compressed-tensors", "FP8_DYNAMIC", func(d *directory) {
			d.quantization()["ignore"] = []any{"lm_head", layer + "mlp"}
		}, "sglang", layer + `mlp.gate_proj: sglang: the client loads it as unquantized, because "` + layer + `mlp" on the ignore list is a ` +
			`substring of its name`},
		{"a router on the list", 32, 128, quant.NVFP4, "modelopt", "W4A16_NVFP4", func(d *directory) {
			d.quantization()["ignore"] = []any{"lm_head", layer + "mlp.gate"}
		}, "vllm", layer + `mlp.gate_proj: vllm: the client loads it as unquantized, because "` + layer + `mlp.gate" on the ignore list is a ` +
			`substring of its name`},
		{"an algorithm in upper case", 128, 128, quant.FP8Block, "modelopt", "fp8_pb_wo", func(d *directory) {
			d.quantization()["quant_algo"] = "FP8_PB_WO"
		}, "trtllm", `trtllm: quant_algo is "FP8_PB_WO", and the client recognizes "fp8_pb_wo" only`},
		{"wildcards", 32, 128, quant.MXFP4, "quark", "fp4", func(d *directory) {
			d.quantization()["exclude"] = []any{"lm_head", "*visual*"}
		}, "vllm", `vllm: "*visual*" is on the exclude list, and the client does not support wildcards: name the modules`},
		{"wildcards of one character", 32, 128, quant.MXFP4, "quark", "fp4", func(d *directory) {
			d.quantization()["exclude"] = []any{"lm_head", "re:.*visual[.].*", "model.visual.?"}
		}, "sglang", `sglang: "model.visual.?" is on the exclude list, and the client does not support wildcards: name the modules`},
		{"blocks of 64", 32, 80, quant.NVFP4, "compressed-tensors", "NVFP4A16", nil,
			"llamacpp", layer + "self_attn.q_proj.weight: llamacpp: it has 80 columns, and the client needs a multiple of 64"},
		{"a global scale", 32, 128, quant.NVFP4, "mlx", "nvfp4", func(d *directory) {
			d.set(layer+"mlp.up_proj.global_scale", safetensors.F32, []int64{1}, []byte{0, 0, 128, 63})
		}, "mlx", layer + "mlp.up_proj.global_scale: mlx: it is a global scale, and the client's modules have none and reject the file"},
		{"global scales that the client does not read", 32, 128, quant.NVFP4, "compressed-tensors", "NVFP4A16", nil,
			"mlx", "mlx: it does not read compressed-tensors NVFP4A16: it reads mlx nvfp4, without global scales: quantize the original for it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := stored(t, open(t, attention(t, tc.rows, tc.cols)), tc.format, tc.convention, tc.scheme)
			if tc.damage != nil {
				d := readDirectory(t, dir)
				tc.damage(d)
				d.write(t, dir)
			}
			m := open(t, dir)
			if len(m.Problems) > 0 {
				t.Fatalf("the convention does not allow it: %v", m.Problems)
			}
			c, err := client.Lookup(strings.ToUpper(tc.client))
			if err != nil {
				t.Fatal(err)
			}
			problems := c.Rejects(m)
			if !slices.ContainsFunc(problems, func(p checkpoint.Problem) bool { return strings.Contains(p.String(), tc.want) }) {
				t.Errorf("problems are %v, want %q", problems, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		name, client string
		convention   string
		format       quant.Format
		damage       func(*directory)
	}{
		{"a tied head in a pattern", "transformers", "compressed-tensors", quant.MXFP8, func(d *directory) {
			delete(d.tensors, "lm_head.weight")
			d.quantization()["ignore"] = []any{"re:.*lm_head"}
		}},
		{"a tied head of a convention without a list", "transformers", "deepseek", quant.FP8Block, func(d *directory) {
			delete(d.tensors, "lm_head.weight")
			delete(d.quantization(), "modules_to_not_convert")
		}},
		{"a tied head for another client", "vllm", "compressed-tensors", quant.MXFP8, func(d *directory) {
			delete(d.tensors, "lm_head.weight")
			d.quantization()["ignore"] = []any{}
		}},
		{"patterns for an adapter", "transformers", "compressed-tensors", quant.MXFP8, func(d *directory) {
			d.set("multi_modal_projector.linear_1.weight", safetensors.BF16, []int64{32, 128}, values(t, 1, 32*128))
			d.config["model_type"] = "llava"
			d.quantization()["ignore"] = []any{"lm_head", "re:.*multi_modal_projector.*"}
		}},
	} {
		dir := stored(t, open(t, attention(t, 128, 128)), tc.format, tc.convention, "")
		d := readDirectory(t, dir)
		tc.damage(d)
		d.write(t, dir)
		c, err := client.Lookup(tc.client)
		if err != nil {
			t.Fatal(err)
		}
		if problems := c.Rejects(open(t, dir)); len(problems) > 0 {
			t.Errorf("%s: problems are %v", tc.name, problems)
		}
	}
	if _, err := client.Lookup("none"); err == nil || !strings.Contains(err.Error(),
		`unknown client "none": use one of vllm, sglang, trtllm`) {
		t.Errorf("error %v", err)
	}
	src := open(t, attention(t, 128, 128))
	dst := open(t, stored(t, src, quant.NVFP4, "modelopt", "NVFP4"))
	d := readDirectory(t, dst.Source.Path)
	bare := t.TempDir()
	d.write(t, bare)
	c, err := client.Lookup("trtllm")
	if err != nil {
		t.Fatal(err)
	}
	report := compare(t, src, open(t, bare), verify.Options{Clients: []string{c.Name}})
	if len(report.Problems) != 1 || report.Problems[0].Text != "trtllm: hf_quant_config.json is missing, from which the client reads how "+
		"weights are quantized" {
		t.Errorf("problems are %v", report.Problems)
	}
	if problems := c.Rejects(src); problems != nil {
		t.Errorf("of what is not quantized: %v", problems)
	}
}

// TestBlocks: the worst block of a weight, zero scales, and blocks flushed to zero.
func TestBlocks(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	src := attention(t, 32, 128)
	d := readDirectory(t, src)
	e := d.tensors[name]
	clear(e.data[2*(3*128+32) : 2*(3*128+64)]) // a block of zeros
	d.write(t, src)
	dst := stored(t, open(t, src), quant.MXFP4, "compressed-tensors", "MXFP4A16")
	got := readDirectory(t, dst)
	clear(got.tensors[name+"_packed"].data[7*64 : 7*64+16]) // the codes of a block are gone
	got.write(t, dst)
	report := compare(t, open(t, src), open(t, dst), verify.Options{})
	i := slices.IndexFunc(report.Blocks, func(b verify.Blocks) bool { return b.Tensor == name })
	if i < 0 || len(report.Blocks) != 5 {
		t.Fatalf("blocks are %+v", report.Blocks)
	}
	b := report.Blocks[i]
	if b.Count != 128 || b.ZeroScales != 1 || b.Lost != 1 || b.Worst != 0 || b.Row != 7 || b.Col != 0 || b.Width != 32 {
		t.Errorf("blocks are %+v", b)
	}
	for _, b := range slices.Delete(slices.Clone(report.Blocks), i, i+1) {
		if b.Count != 128 || b.ZeroScales != 0 || b.Lost != 0 || !(b.Worst > 8 && b.Worst < 25) {
			t.Errorf("blocks of random numbers are %+v", b)
		}
	}
}
