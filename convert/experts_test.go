package convert

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

const mixtralConfig = `{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 256,
	"microscale": {"vocabulary": "bytes"}, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1,
	"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_local_experts": 3,
	"num_experts_per_tok": 2, "torch_dtype": "bfloat16"}`

// mixtral has a layer of three experts, whose global scales differ, in two shards.
func mixtral() map[string][]made {
	const layer = "model.layers.0."
	const bf16 = safetensors.BF16
	tensors := map[string][]made{shard1: {
		{"model.embed_tokens.weight", bf16, 1, []int64{256, 128}}, {"lm_head.weight", bf16, 1, []int64{256, 128}},
		{layer + "input_layernorm.weight", bf16, 1, []int64{128}}, {layer + "block_sparse_moe.gate.weight", bf16, 1, []int64{3, 128}},
		{layer + "post_attention_layernorm.weight", bf16, 1, []int64{128}}, {"model.norm.weight", bf16, 1, []int64{128}},
	}}
	for _, module := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
		tensors[shard2] = append(tensors[shard2], made{layer + "self_attn." + module + ".weight", bf16, 0.1, []int64{128, 128}})
	}
	for e := range 3 {
		shard := []string{shard2, shard1, shard2}[e]
		for part, shape := range map[string][]int64{"w1": {64, 128}, "w2": {128, 64}, "w3": {64, 128}} {
			tensors[shard] = append(tensors[shard], made{fmt.Sprintf("%sblock_sparse_moe.experts.%d.%s.weight", layer, e, part), bf16,
				0.01 * float32(1+3*e), shape})
		}
	}
	return tensors
}

// TestGGUFExperts: GGUF stores the experts of a layer in one tensor, each with its global
// scale. Reading it yields a separate weight for each expert, with unchanged codes.
func TestGGUFExperts(t *testing.T) {
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	for _, f := range []quant.Format{quant.MXFP4, quant.NVFP4, quant.Q8_0, quant.BF16} {
		t.Run("format="+f.Name, func(t *testing.T) {
			path := toGGUF(t, src, f)
			file, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
			for name, shape := range map[string]string{"blk.0.ffn_gate_exps.weight": "[3 64 128]", "blk.0.ffn_down_exps.weight": "[3 128 64]",
				"blk.0.ffn_up_exps.scale": "[3]", "blk.0.ffn_gate_inp.weight": "[3 128]"} {
				info, ok := file.Lookup(name)
				if scale := strings.HasSuffix(name, ".scale"); ok != (!scale || f.Global) || ok && fmt.Sprint(info.Shape) != shape ||
					ok && info.Type != gguf.F32 && !strings.Contains(name, "exps.weight") {
					t.Errorf("%s is %+v, %v", name, info, ok)
				}
			}
			got := openGGUF(t, path)
			report, err := verify.Compare(context.Background(), src.Source, got.Source, verify.Options{})
			if err != nil || !report.OK() {
				t.Errorf("%v (%v)", report.Problems, err)
			}
			q, err := profile.For(f).Quantizer(f)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: q, Convention: "gguf"})
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]map[int64]int64{} // bytes by tensor and beginning
			for _, d := range plan.decisions {
				for _, s := range d.stored {
					if parts[s.Name] == nil {
						parts[s.Name] = map[int64]int64{}
					}
					begin, n := d.extent(s)
					parts[s.Name][begin] += n
				}
			}
			for _, info := range file.Tensors {
				at := int64(0)
				for n := parts[info.Name][at]; n > 0; n = parts[info.Name][at] {
					at += n
				}
				if at != info.Bytes() {
					t.Errorf("%s: parts of weights follow one another to byte %d of %d", info.Name, at, info.Bytes())
				}
			}
			if result, err := plan.Run(context.Background(), path, RunOptions{Resume: true}); err != nil || !result.Finished {
				t.Errorf("what is whole is not known again: %+v (%v)", result, err)
			}
			back := filepath.Join(t.TempDir(), "back.safetensors")
			if f.Scaled() {
				if plan, err = PlanDequantize(t.Context(), got.Source, safetensors.F32); err == nil {
					_, err = plan.Run(context.Background(), back, RunOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				values, w := openModel(t, back), "model.layers.0.block_sparse_moe.experts.2.w3.weight"
				x, _ := values.Lookup(w)
				y, _ := got.Lookup(w)
				a, errA := x.Read(0, 64)
				b, errB := y.Read(0, 64)
				if errA != nil || errB != nil || !slices.Equal(a.Data, b.Data) {
					t.Errorf("%s is decoded to other values (%v, %v)", w, errA, errB)
				}
			}
			if !f.Scaled() || f.Name == quant.Q8_0.Name {
				return
			}
			dir, again := filepath.Join(t.TempDir(), "ct"), filepath.Join(t.TempDir(), "again.gguf")
			o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}}
			if f.Global { // in compressed-tensors a warning names what transformers misreads
				o.Convention = "modelopt"
			}
			quantize(t, src, dir, o, RunOptions{})
			ct := openModel(t, dir)
			sameCodes(t, ct, got)
			relabel(t, ct, again, relabeling{Convention: "gguf"})
			sameCodes(t, ct, openGGUF(t, again))
			for _, w := range ct.Weights {
				if g, ok := openGGUF(t, again).Lookup(w.Name); !ok || g.Quantized() != w.Quantized() || f.Global && w.Quantized() &&
					g.Global != w.Global {
					t.Errorf("%s has the global scale %g, and had %g", w.Name, g.Global, w.Global)
				}
			}
		})
	}
}

// TestGGUFExpertsRejected: the experts of a tensor must be complete and in one format.
func TestGGUFExpertsRejected(t *testing.T) {
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "gguf", Exclude: patterns(`experts\.1\.w2`)}
	if _, err := PlanQuantize(t.Context(), src.Source, o); err == nil || !strings.Contains(err.Error(),
		"but another expert in the same tensor of llama.cpp is") {
		t.Errorf("with an unquantized expert: error %v", err)
	}
	fewer := mixtral()
	for shard, tensors := range fewer {
		var kept []made
		for _, m := range tensors {
			if !strings.HasSuffix(m.name, "experts.2.w3.weight") {
				kept = append(kept, m)
			}
		}
		fewer[shard] = kept
	}
	o.Exclude = nil
	if _, err := PlanQuantize(t.Context(), openModel(t, writeModel(t, fewer, mixtralConfig)).Source, o); err == nil ||
		!strings.Contains(err.Error(), "model.layers.0.block_sparse_moe.experts.2.w3.weight is missing") {
		t.Errorf("with an expert missing: error %v", err)
	}
	qwen := strings.NewReplacer("MixtralForCausalLM", "Qwen2MoeForCausalLM", "num_local_experts",
		`moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "num_experts`, `"num_hidden_layers": 1,`, "").Replace(mixtralConfig)
	o.Quantizer.Format = quant.NVFP4
	if _, err := PlanQuantize(t.Context(), openModel(t, writeModel(t, mixtral(), qwen)).Source, o); err == nil ||
		!strings.Contains(err.Error(), "llama.cpp ignores global scales of nvfp4 in qwen2moe") {
		t.Errorf("NVFP4 of qwen2moe: error %v", err)
	}
}

// TestMLXExperts: mlx-lm has the experts of a layer in one tensor for each projection. Reading it yields a separate
// weight for each expert, with unchanged codes, which every other conversion takes.
func TestMLXExperts(t *testing.T) {
	src := openModel(t, writeModel(t, mixtral(), mixtralConfig))
	for _, f := range []quant.Format{quant.MXFP4, quant.MXFP8, quant.NVFP4} {
		t.Run("format="+f.Name, func(t *testing.T) {
			o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Client: "mlx"}
			if f.Global {
				o.Quantizer.Arithmetic = quant.BlockNearest
			}
			dir := filepath.Join(t.TempDir(), "mlx")
			quantize(t, src, dir, o, RunOptions{})
			got := openModel(t, dir)
			for name, shape := range map[string][]int64{"gate_proj": {3, 64, 128}, "up_proj": {3, 64, 128}, "down_proj": {3, 128, 64}} {
				codes, ok := got.Source.Lookup("model.layers.0.block_sparse_moe.switch_mlp." + name + ".weight")
				want := append(slices.Clone(shape[:2]), shape[2]*int64(f.Element.StoredBits())/32)
				scales, hasScales := got.Source.Lookup("model.layers.0.block_sparse_moe.switch_mlp." + name + ".scales")
				blocks := append(slices.Clone(shape[:2]), shape[2]/int64(f.Block.Cols))
				if !ok || !hasScales || !slices.Equal(codes.Shape, want) || !slices.Equal(scales.Shape, blocks) {
					t.Errorf("%s: codes %v, scales %v, want %v and %v", name, codes.Shape, scales.Shape, want, blocks)
				}
			}
			if _, ok := got.Source.Lookup("model.layers.0.block_sparse_moe.experts.0.w1.scales"); ok || len(got.Problems) > 0 {
				t.Errorf("experts alone: %v; problems %v", ok, got.Problems)
			}
			report, err := verify.Compare(t.Context(), src.Source, got.Source, verify.Options{Clients: []string{"mlx"}})
			if err != nil || !report.OK() || report.Checked(verify.Bounded) != 13 {
				t.Errorf("%v (%v)", report.Problems, err)
			}
			back := filepath.Join(t.TempDir(), "plain")
			relabel(t, got, back, relabeling{Convention: "plain"})
			alone := openModel(t, back)
			const expert = "model.layers.0.block_sparse_moe.experts.2.w2.weight"
			a, ok := got.Lookup(expert)
			b, also := alone.Lookup(expert)
			if !ok || !also || !a.Joined || b.Joined {
				t.Fatalf("%v, %v", a, b)
			}
			x, err := a.Read(0, 128)
			if err != nil {
				t.Fatal(err)
			}
			y, err := b.Read(0, 128)
			if err != nil || !slices.Equal(x.Data, y.Data) {
				t.Errorf("other values (%v)", err)
			}
			again := filepath.Join(t.TempDir(), "again")
			relabel(t, alone, again, relabeling{Convention: "mlx"})
			if names, want := tensorNames(openModel(t, again)), tensorNames(got); !slices.Equal(names, want) {
				t.Errorf("tensors %v, want %v", names, want)
			}
		})
	}
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "mlx", Exclude: patterns(`experts\.1\.w2`)}
	if _, err := PlanQuantize(t.Context(), src.Source, o); err == nil ||
		!strings.Contains(err.Error(), "experts.1.w2.weight: it is bf16 [128 64], but ") ||
		!strings.Contains(err.Error(), "quantize all experts of a layer or none") {
		t.Errorf("an expert is left out: %v", err)
	}
	o.Exclude = patterns("experts")
	plan, err := PlanQuantize(t.Context(), src.Source, o)
	if err != nil {
		t.Fatal(err)
	}
	for d := range plan.Decisions() {
		if strings.Contains(d.Name, "experts") && d.Tensors[0].Name != d.Name {
			t.Errorf("%s is in %s, though no expert is quantized", d.Name, d.Tensors[0].Name)
		}
	}
	fewer := mixtral()
	for shard, all := range fewer {
		fewer[shard] = slices.DeleteFunc(all, func(m made) bool { return strings.Contains(m.name, "experts.1.w1") })
	}
	config := strings.Replace(mixtralConfig, `"num_hidden_layers": 1,`, "", 1) // else it is incomplete
	o.Exclude = nil
	if _, err := PlanQuantize(t.Context(), openModel(t, writeModel(t, fewer, config)).Source, o); err == nil ||
		!strings.Contains(err.Error(), "experts.2.w1.weight: expert 1 of its layer is missing") {
		t.Errorf("an expert is missing: %v", err)
	}
}

// tensorNames returns the names of the tensors of a checkpoint, sorted.
func tensorNames(m *checkpoint.Model) (names []string) {
	for _, t := range m.Source.Tensors() {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// TestDequantizeJoined: the experts of models that transformers holds in one tensor a layer, and joins from no single
// ones, are joined again by dequantize, in the order of its classes.
func TestDequantizeJoined(t *testing.T) {
	const experts, hidden, inter = 3, 96, 64
	const parent = "model.layers.0.mlp.experts."
	for modelType, shapes := range map[string][2][]int64{
		"granitemoe":  {{experts, 2 * inter, hidden}, {experts, hidden, inter}},
		"llama4_text": {{experts, hidden, 2 * inter}, {experts, inter, hidden}},
	} {
		t.Run("family="+modelType, func(t *testing.T) {
			config := fmt.Sprintf(`{"model_type": %q, "hidden_size": %d, "num_local_experts": %d, "torch_dtype": "bfloat16"}`, modelType, hidden,
				experts)
			src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
				{parent + "gate_up_proj", safetensors.BF16, 0.1, shapes[0]}, {parent + "down_proj", safetensors.BF16, 0.1, shapes[1]},
				{"model.norm.weight", safetensors.BF16, 1, []int64{hidden}},
			}}, config))
			dir, back := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "back")
			quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Convention: "modelopt"}, RunOptions{})
			single := openModel(t, dir)
			plan, err := PlanDequantize(t.Context(), single.Source, safetensors.BF16)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Run(t.Context(), back, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			joined := openModel(t, back)
			if names, want := tensorNames(joined), tensorNames(src); !slices.Equal(names, want) || len(joined.Problems) > 0 || len(plan.Notes) > 0 {
				t.Fatalf("tensors %v, want %v; problems %v, notes %q", names, want, joined.Problems, plan.Notes)
			}
			compared := 0
			for _, name := range []string{"gate_up_proj", "down_proj"} {
				whole, _ := joined.Lookup(parent + name)
				source, _ := src.Lookup(parent + name)
				if !slices.Equal(whole.Shape, source.Shape) {
					t.Fatalf("%s is %v, want %v", name, whole.Shape, source.Shape)
				}
				for _, expert := range whole.Split() {
					w, ok := single.Lookup(expert.Name)
					if !ok {
						t.Fatalf("%s is missing", expert.Name)
					}
					rows, _ := w.Matrix()
					got, err := expert.Read(0, rows)
					if err != nil {
						t.Fatal(err)
					}
					want, err := w.Read(0, rows)
					if err != nil || !slices.Equal(got.Data, want.Data) {
						t.Errorf("%s has other values (%v)", expert.Name, err)
					}
					compared++
				}
			}
			if compared != 3*experts {
				t.Errorf("%d weights compared", compared)
			}
			report, err := verify.Compare(t.Context(), single.Source, joined.Source, verify.Options{}) // and with its checksums
			if err != nil || !report.OK() || report.Checked(verify.Rounded) != 3*experts {
				t.Errorf("%v (%v)", report.Problems, err)
			}
		})
	}
}
