package lint

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestOwnFiles: no rule finds anything in what is written for a client, or in its conventions and schemes, with and without scales
// of activations, of a dense model and one of experts.
func TestOwnFiles(t *testing.T) {
	slow.Race(t, slow.Repeats)
	files := 0
	for _, s := range []source{dense(128, 128), experts("qwen3_moe")} {
		dir := t.TempDir()
		s.write(t, dir)
		for _, c := range checkpoint.Conventions() {
			for _, f := range c.Formats() {
				for _, scheme := range c.Schemes(f) {
					out := ownFile(t, dir, f, convert.QuantizeOptions{Convention: c.Name, Scheme: scheme}, c)
					if out == "" {
						continue
					}
					files++
					for _, reader := range client.All() {
						if reader.Reads(c.Name, scheme) { // written for no client, it may be what this one rejects
							checkOwn(t, out, reader, unread, "hf-moe-global", "experts-layout")
						}
					}
				}
			}
		}
		c, err := checkpoint.LookupConvention("compressed-tensors")
		if err != nil {
			t.Fatal(err)
		}
		out := ownFile(t, dir, quant.MXFP4, convert.QuantizeOptions{Convention: c.Name}, c)
		if r := check(t, out, ""); len(r.Findings) > 0 || len(r.Skipped) == 0 {
			t.Errorf("without a client: %+v, not read by %v", r.Findings, r.Skipped)
		}
		for _, c := range client.All() {
			for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Block} {
				storages, err := c.Stores(f)
				if err != nil {
					continue
				}
				if out := ownFile(t, dir, f, convert.QuantizeOptions{Client: c.Name}, storages[0].Convention); out != "" {
					files++
					checkOwn(t, out, c)
				}
			}
		}
	}
	if files < 80 {
		t.Errorf("only %d files were written", files)
	}
}

// ownFile quantizes the checkpoint in dir and returns the directory; "" if there is no such plan, or it is a GGUF file, which would
// need a tokenizer.
func ownFile(t *testing.T, dir string, f quant.Format, o convert.QuantizeOptions, c *checkpoint.Convention) string {
	t.Helper()
	if only, err := c.With(f, o.Scheme); err == nil {
		if _, a := only.Scheme(f); a == checkpoint.Static {
			o.Calibration = &convert.Calibration{ConstantInputs: true}
		}
	}
	o.Quantizer.Format = f
	plan, err := convert.PlanQuantize(t.Context(), open(t, dir).Source, o)
	if err != nil || c.Is(checkpoint.GGUF()) {
		return ""
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := plan.Run(t.Context(), out, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkOwn reports findings beside those of the named rules.
func checkOwn(t *testing.T, dir string, c client.Client, rules ...string) {
	t.Helper()
	m := open(t, dir)
	for _, f := range check(t, dir, c.Name).Findings {
		if !slices.Contains(rules, f.Rule.Name) {
			t.Errorf("%s %s for %s: %s %s: %s", m.Convention, m.Scheme, c, f.Rule.Name, f.Tensor, f.Text)
		}
	}
}

// TestManyTensors: lint applies all rules to headers of 100,000 tensors and a list of 12,000 modules. The time is logged.
func TestManyTensors(t *testing.T) {
	slow.Long(t, "98,304 tensors are written first")
	const layers, perLayer = 32, 128 // 3 tensors for each of 3 weights of an expert, and as many unquantized ones of another model
	d := directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "qwen3_moe", "torch_dtype": "bfloat16",
		"num_experts": perLayer}}
	var ignore []any
	for l := range layers {
		for e := range perLayer {
			for _, p := range []string{"gate_proj", "up_proj", "down_proj"} {
				module := fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s", l, e, p)
				d.set(module+".weight_packed", safetensors.U8, []int64{16, 8}, make([]byte, 16*8))
				d.set(module+".weight_scale", safetensors.F8E4M3, []int64{16, 1}, bytes.Repeat([]byte{0x38}, 16)) // ones
				d.set(module+".weight_global_scale", safetensors.F32, []int64{1}, float(1))
				draft := fmt.Sprintf("draft.layers.%d.block.%d.%s", l, e, p)
				d.set(draft+weightSuffix, safetensors.BF16, []int64{16, 16}, make([]byte, 2*16*16))
				ignore = append(ignore, draft)
				for _, suffix := range []string{".bias", ".a", ".b", ".c"} {
					d.set(module+suffix, safetensors.BF16, []int64{1}, make([]byte, 2))
				}
			}
		}
	}
	made := dense(128, 128).quantize(t, ctNVFP4)
	d.config["quantization_config"] = readDirectory(t, made).quantization()
	d.quantization()["ignore"] = append(ignore, "lm_head")
	dir := t.TempDir()
	d.write(t, dir)
	if len(d.tensors) < 98_000 {
		t.Fatalf("%d tensors", len(d.tensors))
	}
	start := time.Now()
	c, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := Run(t.Context(), checkpoint.Read(c), Options{})
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return len(f.Clients) == 0 || slices.Contains(f.Clients, "vllm") }); i >= 0 {
		t.Errorf("finding %+v", r.Findings[i])
	}
	t.Logf("%d tensors in %v", len(d.tensors), took)
}
