package lint

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
)

// TestBrokenConfigs: what cannot be read of a configuration is a finding, and does not keep other rules from being applied.
func TestBrokenConfigs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stored stored
		damage func(d *directory)
		want   []string // rules and parts of their texts
	}{
		{"unsupported algorithm in both files", moA16, func(d *directory) {
			d.quantization()["quant_algo"] = "NVFP5"
			d.sidecar["quantization"].(map[string]any)["quant_algo"] = "NVFP5"
		}, []string{"unsupported", "NVFP5"}},
		{"two unsupported algorithms", moA16, func(d *directory) {
			d.quantization()["quant_algo"] = "NVFP5"
			d.sidecar["quantization"].(map[string]any)["quant_algo"] = "NVFP6"
		}, []string{"unsupported", "NVFP5", contradiction, "NVFP6"}},
		{"member of another type", ctMXFP8, func(d *directory) {
			d.quantization()["scale_fmt"] = 3
			delete(d.group()["weights"].(map[string]any), "scale_dtype")
		}, []string{unreadable, "scale_fmt", "scale-dtype", "no scale_dtype"}},
		{"list of another type", moA16, func(d *directory) {
			d.sidecar["quantization"].(map[string]any)["group_size"] = "16"
			d.sidecarIgnore(layer0 + "mlp.up_proj")
		}, []string{unreadable, "quantization.group_size", "config-file-contradiction", "and not in config.json"}},
		{"finding of a tensor beside one of the whole", ctNVFP4, func(d *directory) {
			d.quantization()["format"] = 3
			e := d.tensors[layer0+"mlp.up_proj.weight_scale"]
			d.set(layer0+"mlp.up_proj.weight_scale", e.Dtype, []int64{256, 8}, append(e.data, e.data...))
		}, []string{unreadable, "format"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := dense(128, 128).quantize(t, tc.stored)
			d := readDirectory(t, dir)
			tc.damage(d)
			d.write(t, dir)
			r := check(t, dir, "")
			for i := 0; i < len(tc.want); i += 2 {
				if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
					return f.Rule.Name == tc.want[i] && strings.Contains(f.Text, tc.want[i+1])
				}) {
					t.Errorf("findings are %s, want %s: %q", texts(r), tc.want[i], tc.want[i+1])
				}
			}
			if _, err := PlanRepair(t.Context(), open(t, dir), nil, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnlistedHead: an output head that is neither quantized nor on the list is a fault for other clients than vLLM, unless a
// pattern selects it.
func TestUnlistedHead(t *testing.T) {
	for _, tc := range []struct {
		target, clients, list string
		want                  []string // clients of the finding
		found                 bool
	}{
		{"Linear", "vllm", "", nil, false},
		{"Linear", "vllm transformers", "", []string{"transformers"}, true},
		{"Linear", "vllm", "lm_head.linear", nil, false},
		{"Linear", "vllm transformers", "lm_head.linear", []string{"transformers"}, true},
		{"re:.*", "vllm", "", nil, true},
	} {
		dir := dense(128, 128).quantize(t, ctMXFP8)
		d := readDirectory(t, dir)
		d.quantization()["ignore"] = []any{}
		if tc.list != "" {
			d.ignore(tc.list)
		}
		d.group()["targets"] = []any{tc.target}
		d.write(t, dir)
		r := check(t, dir, tc.clients)
		if len(r.Findings) > 1 || (len(r.Findings) == 1) != tc.found ||
			tc.found && (r.Findings[0].Tensor != "lm_head.weight" || !slices.Equal(r.Findings[0].Clients, tc.want)) {
			t.Errorf("%+v: found %s", tc, texts(r))
		}
	}
}

// TestCacheOnly: Model Optimizer describes a quantized KV cache of weights that are values in one file or two, and this is no fault.
func TestCacheOnly(t *testing.T) {
	for _, both := range []bool{false, true} {
		dir := t.TempDir()
		dense(128, 128).write(t, dir)
		d := readDirectory(t, dir)
		d.set(layer0+"self_attn.k_proj.k_scale", safetensors.F32, nil, float(1))
		d.sidecar = map[string]any{"quantization": map[string]any{"quant_algo": nil, "kv_cache_quant_algo": "FP8"}}
		if both {
			d.config["quantization_config"] = map[string]any{"quant_method": "modelopt", "ignore": []any{}, "kv_cache_scheme": map[string]any{
				"dynamic": false, "num_bits": 8, "type": "float"}}
		}
		d.write(t, dir)
		r := check(t, dir, "trtllm")
		if m := open(t, dir); len(r.Findings) > 0 || m.Convention != nil || len(m.Notes) != 1 {
			t.Errorf("both %t: found %s, notes %q", both, texts(r), m.Notes)
		}
	}
}

// TestCacheAlgo: an algorithm of the KV cache that no client knows is a finding, with and without an algorithm of weights.
func TestCacheAlgo(t *testing.T) {
	for text, want := range map[string]string{
		`"FP8"`: "", `"NVFP4_AFFINE"`: "", `null`: "", `"XX"`: `is "XX", which`, `5`: "is 5, which", `"fp8"`: `is "fp8", which`,
		`{"a": 1}`: `is {"a":1}, which`,
	} {
		var algo any
		if err := json.Unmarshal([]byte(text), &algo); err != nil {
			t.Fatal(err)
		}
		for _, weights := range []bool{false, true} {
			dir := t.TempDir()
			dense(32, 32).write(t, dir)
			if weights {
				dir = dense(32, 32).quantize(t, moA16)
			}
			d := readDirectory(t, dir)
			if !weights {
				d.sidecar = map[string]any{"quantization": map[string]any{"quant_algo": nil}}
			}
			d.sidecar["quantization"].(map[string]any)["kv_cache_quant_algo"] = algo
			d.write(t, dir)
			var got []string
			for _, f := range check(t, dir, "trtllm").Findings {
				if f.Rule.Name == unreadable {
					got = append(got, f.Text)
				}
			}
			if (want != "") != (len(got) == 1) || !strings.Contains(strings.Join(got, ""), want) {
				t.Errorf("%s, weights quantized %t: got %q, want %q", text, weights, got, want)
			}
		}
	}
}

// TestUnexplained: a finding of one tensor explains those of its own module, and of the whole checkpoint only those that name it.
func TestUnexplained(t *testing.T) {
	c := &checker{Model: &checkpoint.Model{Convention: checkpoint.GGUF()}, found: []Finding{
		{Rule: lookup("algo-unknown"), Tensor: "a.b"},
		{Rule: lookup(structure), Text: "the algorithm of a.b is not known"},
		{Rule: lookup(structure), Text: "the algorithm of a.bc is not known"},
		{Rule: lookup(structure), Tensor: "a.b.weight_scale"},
		{Rule: lookup(structure), Tensor: "a.bc.weight_scale"},
		{Rule: lookup("unsupported"), Text: "the algorithm of a.b is not known"},
		{Rule: lookup("none-quantized")},
	}}
	var got []string
	for _, f := range c.unexplained() {
		got = append(got, f.Rule.Name+" "+f.Tensor)
	}
	if want := []string{"algo-unknown a.b", "structure ", "structure a.bc.weight_scale", "none-quantized "}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}
