package lint

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// repaired repairs a checkpoint, and returns the result and the repair.
func repaired(t *testing.T, dir, original, clients string) (string, *Repair) {
	t.Helper()
	c, err := hf.OpenUnchecked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var from *checkpoint.Model
	if original != "" {
		from = open(t, original)
	}
	r, err := PlanRepair(t.Context(), checkpoint.Read(c), from, Options{Clients: chosenClients(t, clients)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanPatch(t.Context(), c, r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "repaired")
	if _, err := plan.Run(t.Context(), out, convert.RunOptions{AllowNonFinite: true}); err != nil {
		t.Fatal(err)
	}
	return out, r
}

// repairable are the rules whose damages are repaired, and whether verify then passes: what was lost is not known, and scales of
// activations are not compared.
var repairable = []string{"set-global", "expert-gate-up", "input-scale-missing", "input-scale-bad", "input-set", "ignored-quantized",
	"unquantized-unlisted", "ignore-parent", "ignore-substring", "ignore-expert-names", "ignore-fused-partial", "ignore-wrapper",
	"ignore-class", "config-file-contradiction", "algo-case", "mtp-missing", "mtp-partial", "block-scale-shape", foreignNames}

// TestRepair: after a repair lint finds nothing, every other tensor has its bytes, and verify passes where the damage did not change
// values.
func TestRepair(t *testing.T) {
	done := map[string]bool{}
	for _, tc := range damages(t) {
		if !slices.Contains(repairable, tc.rule) {
			continue
		}
		done[tc.rule] = true
		t.Run(tc.rule, func(t *testing.T) {
			src := t.TempDir()
			tc.source.write(t, src)
			dir := tc.source.quantize(t, tc.stored)
			d := readDirectory(t, dir)
			tc.damage(d)
			d.write(t, dir)
			original := ""
			if tc.rule == "mtp-missing" {
				original = src
			}
			broken := tc.clients
			if tc.rule == "input-scale-bad" { // no other weight of the set has one
				d.tensors[layer0+"self_attn.q_proj.input_scale"].put(0.25)
				d.write(t, dir)
			}
			for rule, marked := range marks(t, dir, broken) {
				if marked != (original == "") {
					t.Errorf("%s: repairable is %v", rule, marked)
				}
			}
			out, r := repaired(t, dir, original, broken)
			if len(r.Changes) == 0 || len(r.Left) > 0 {
				t.Errorf("changes %+v, left %+v", r.Changes, r.Left)
			}
			if report := check(t, out, broken); len(report.Findings) > 0 {
				t.Errorf("after the repair: %s\nchanges %+v", texts(report), r.Changes)
			}
			after := readDirectory(t, out)
			for name, e := range d.tensors {
				got, ok := after.tensors[name]
				named := slices.ContainsFunc(r.Changes, func(c Change) bool { return strings.HasPrefix(name, c.Name) })
				if !named && (!ok || !bytes.Equal(got.data, e.data) || !slices.Equal(got.Shape, e.Shape)) {
					t.Errorf("%s changed", name)
				}
			}
			if slices.Contains([]string{"set-global", "expert-gate-up", "ignore-fused-partial", "ignore-expert-names", "unquantized-unlisted",
				"ignore-wrapper"}, tc.rule) {
				return // the damage changes values
			}
			report, err := verify.Compare(t.Context(), open(t, src).Source, open(t, out).Source, verify.Options{Threads: 1})
			if err != nil || len(report.Problems) > 0 {
				t.Errorf("verify: %v (%v)", report.Problems, err)
			}
		})
	}
	for _, name := range repairable {
		if !done[name] {
			t.Errorf("%s has no case", name)
		}
	}
}

// TestRepairHead: verify passes after a head that stayed as it was is put on the list.
func TestRepairHead(t *testing.T) {
	src := t.TempDir()
	dense(128, 128).write(t, src)
	for _, tc := range []struct {
		rule string
		list []any
	}{{"unquantized-unlisted", []any{}}, {"ignore-wrapper", []any{"lm_head.linear"}}} {
		dir := dense(128, 128).quantize(t, ctMXFP8)
		d := readDirectory(t, dir)
		d.quantization()["ignore"] = tc.list
		d.write(t, dir)
		if r := check(t, dir, "transformers"); len(r.Findings) != 1 || r.Findings[0].Rule.Name != tc.rule {
			t.Errorf("%s: found %s", tc.rule, texts(r))
		}
		out, _ := repaired(t, dir, "", "transformers")
		if r := check(t, out, "transformers"); len(r.Findings) > 0 {
			t.Errorf("%s: after the repair: %s", tc.rule, texts(r))
		}
		report, err := verify.Compare(t.Context(), open(t, src).Source, open(t, out).Source, verify.Options{Threads: 1})
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("%s: verify: %v (%v)", tc.rule, report.Problems, err)
		}
	}
}

// marks returns the rules that find something, and whether all of their findings are repairable.
func marks(t *testing.T, dir, clients string) map[string]bool {
	t.Helper()
	r := check(t, dir, clients)
	if err := r.MarkRepairable(t.Context(), open(t, dir)); err != nil {
		t.Fatal(err)
	}
	marked := map[string]bool{}
	for _, f := range r.Findings {
		before, found := marked[f.Rule.Name]
		marked[f.Rule.Name] = f.Repairable && (before || !found)
	}
	return marked
}

// TestRepairOfAnother: an original of other shapes, or with another embedding, is an error, and that of the checkpoint is none.
func TestRepairOfAnother(t *testing.T) {
	src, seeded, wide := dense(128, 128), t.TempDir(), t.TempDir()
	dir := src.quantize(t, ctMXFP8)
	src.write(t, seeded)
	d := readDirectory(t, seeded)
	if _, err := PlanRepair(t.Context(), open(t, dir), open(t, seeded), Options{}); err != nil {
		t.Errorf("its own original: %v", err)
	}
	d.tensors["lm_head.weight"].data[1] ^= 1
	d.write(t, seeded)
	dense(128, 256).write(t, wide)
	for other, want := range map[string]string{seeded: "lm_head.weight, which is not quantized, has other values", wide: "has shape"} {
		if _, err := PlanRepair(t.Context(), open(t, dir), open(t, other), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("another original: %v, want %q", err, want)
		}
	}
}

// TestRepairGlobals: codes stay, the decoded values of a set with global scales of powers of two are the same, and others are within
// the reported error.
func TestRepairGlobals(t *testing.T) {
	for _, tc := range []struct {
		global float32
		exact  bool
	}{{2, true}, {0.25, true}, {0.797, false}} {
		dir := dense(128, 128).quantize(t, ctNVFP4)
		d := readDirectory(t, dir)
		name := layer0 + "self_attn.k_proj.weight"
		before, _ := open(t, dir).Lookup(name)
		d.tensors[name+"_global_scale"].put(1 / (before.Global * tc.global))
		d.write(t, dir)
		out, r := repaired(t, dir, "", "vllm")
		worst := 0.0
		for _, name := range []string{name, layer0 + "self_attn.q_proj.weight", layer0 + "self_attn.v_proj.weight"} {
			want, got := valuesOf(t, dir, name), valuesOf(t, out, name)
			for i := range want {
				if want[i] != 0 {
					worst = max(worst, float64(abs(got[i]-want[i])/abs(want[i])))
				}
			}
		}
		if (worst < 1e-6) != tc.exact || worst > 1.0/16 {
			t.Errorf("times %g: the worst relative error is %g; %+v", tc.global, worst, r.Changes)
		}
		exact := !slices.ContainsFunc(r.Changes, func(c Change) bool { return !strings.HasSuffix(c.Text, "every scale exact") })
		if exact != tc.exact {
			t.Errorf("times %g: %+v", tc.global, r.Changes)
		}
	}
}

// TestRepairWrongGlobal: where a global scale is wrong by itself, no common one is found, and the set is left as it is.
func TestRepairWrongGlobal(t *testing.T) {
	for _, factor := range []float32{1 << 20, 1e-6} {
		dir := dense(128, 128).quantize(t, ctNVFP4)
		d := readDirectory(t, dir)
		name := layer0 + "self_attn.k_proj.weight"
		before, _ := open(t, dir).Lookup(name)
		d.tensors[name+"_global_scale"].put(1 / (before.Global * factor))
		d.write(t, dir)
		m := open(t, dir)
		r, err := PlanRepair(t.Context(), m, nil, Options{Clients: chosenClients(t, "vllm")})
		if err != nil || len(r.Changes) > 0 || len(r.Left) == 0 || !strings.Contains(r.Left[0].String(), "no common global scale keeps") {
			t.Errorf("times %g: changes %+v, left %+v (%v)", factor, r.Changes, r.Left, err)
		}
	}
}

func abs(v float32) float32 { return max(v, -v) }

// valuesOf returns the values of a weight.
func valuesOf(t *testing.T, dir, name string) []float32 {
	t.Helper()
	w, ok := open(t, dir).Lookup(name)
	if !ok {
		t.Fatalf("%s is missing", name)
	}
	x, err := w.Read(0, int(w.Shape[0]))
	if err != nil {
		t.Fatal(err)
	}
	return x.Data
}

// TestRepairFiles: an index that lacks a tensor, and a file of modelopt that is missing.
func TestRepairFiles(t *testing.T) {
	dir := dense(128, 128).quantize(t, moA16)
	if err := os.Remove(filepath.Join(dir, modelOpt.Sidecar())); err != nil {
		t.Fatal(err)
	}
	out, _ := repaired(t, dir, "", "trtllm")
	if r := check(t, out, "trtllm"); len(r.Findings) > 0 {
		t.Errorf("after the repair: %s", texts(r))
	}
	dir = dense(128, 128).quantize(t, ctMXFP8)
	shard := safetensors.ShardName(1, 1)
	name := "model-00001-of-00001.safetensors"
	if err := os.Rename(filepath.Join(dir, shard), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	index := `{"metadata": {}, "weight_map": {"lm_head.weight": "` + name + `", "gone.weight": "` + name + `"}}`
	if err := os.WriteFile(filepath.Join(dir, safetensors.IndexName), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := hf.OpenUnchecked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := Run(t.Context(), checkpoint.Read(c), Options{Clients: chosenClients(t, "vllm")})
	if err != nil || len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule.Name != "index" }) {
		t.Errorf("findings %s (%v)", texts(r), err)
	}
	out, _ = repaired(t, dir, "", "vllm")
	if r := check(t, out, "vllm"); len(r.Findings) > 0 {
		t.Errorf("after the repair: %s", texts(r))
	}
	// Several files without an index.
	if err := os.Remove(filepath.Join(dir, safetensors.IndexName)); err != nil {
		t.Fatal(err)
	}
	extra := directory{tensors: map[string]entry{}}
	extra.set("model.norm.bias", safetensors.BF16, []int64{8}, values(1, 8))
	other := t.TempDir()
	extra.write(t, other)
	if err := os.Rename(filepath.Join(other, shard), filepath.Join(dir, "other.safetensors")); err != nil {
		t.Fatal(err)
	}
	if r := check(t, dir, "vllm"); len(r.Findings) != 1 || r.Findings[0].Rule.Name != "index" {
		t.Errorf("findings %s", texts(r))
	}
	out, _ = repaired(t, dir, "", "vllm")
	if r := check(t, out, "vllm"); len(r.Findings) > 0 {
		t.Errorf("after the repair: %s", texts(r))
	}
}

// TestRepairSidecar: a file of modelopt that is missing is not written where its format is not.
func TestRepairSidecar(t *testing.T) {
	const weight = layer0 + "self_attn.q_proj.weight"
	for algo, bytes := range map[string]map[string]entry{
		"W4A8_NVFP4_FP8": {"": {safetensors.Spec{Dtype: safetensors.U8, Shape: []int64{32, 16}}, make([]byte, 512)},
			"_scale":   {safetensors.Spec{Dtype: safetensors.F8E4M3, Shape: []int64{32, 1}}, make([]byte, 32)},
			"_scale_2": {safetensors.Spec{Dtype: safetensors.F32}, float(1)}},
		"W4A8_MXFP4_FP8": {"": {safetensors.Spec{Dtype: safetensors.U8, Shape: []int64{32, 16}}, make([]byte, 512)},
			"_scale": {safetensors.Spec{Dtype: safetensors.U8, Shape: []int64{32, 1}}, make([]byte, 32)}},
	} {
		d := directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "llama",
			"quantization_config": map[string]any{"quant_method": "modelopt", "quant_algo": algo}}}
		for suffix, e := range bytes {
			d.set(weight+suffix, e.Dtype, e.Shape, e.data)
		}
		dir := t.TempDir()
		d.write(t, dir)
		r, err := PlanRepair(t.Context(), open(t, dir), nil, Options{Clients: chosenClients(t, "trtllm")})
		if err != nil || len(r.Patch.Files) > 0 || !slices.ContainsFunc(r.Left, func(f Finding) bool {
			return f.Rule.Name == "sidecar-missing" && strings.Contains(f.Text, "it is not repaired: hf_quant_config.json is missing, and repair")
		}) {
			t.Errorf("%s: files %v, left %+v (%v)", algo, r.Patch.Files, r.Left, err)
		}
	}
}

// TestSidecarUnusable: a file of modelopt that names no quantization is as a missing one for TensorRT-LLM, and is written anew.
func TestSidecarUnusable(t *testing.T) {
	dir := dense(32, 32).quantize(t, moA16)
	path := filepath.Join(dir, modelOpt.Sidecar())
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for content, text := range map[string]string{"": "is damaged (unexpected end", "none": "is damaged (invalid character",
		"{}": "has no quantization.quant_algo", "null": "has no quantization.quant_algo",
		`{"quantization":null}`: "has no quantization.quant_algo", "[]": "is damaged (it is not a JSON object)",
		`{"quantization":{"quant_algo":4}}`: "is damaged (quantization.quant_algo is a JSON number"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		found := texts(check(t, dir, "trtllm"))
		if !strings.Contains(found, "L48") || !strings.Contains(found, text) {
			t.Errorf("%q: found %s, want %q", content, found, text)
		}
		if content == "[]" && !strings.Contains(found, modelOpt.Sidecar()+": it has the JSON type array, which rules cannot read") {
			t.Errorf("%q: found %s", content, found)
		}
		if found := texts(check(t, dir, "vllm")); strings.Contains(found, "L48") {
			t.Errorf("%q: found for a client that does not read it: %s", content, found)
		}
		r, err := PlanRepair(t.Context(), open(t, dir), nil, Options{Clients: chosenClients(t, "trtllm")})
		if err != nil || len(r.Patch.Files) != 1 || !bytes.Equal(r.Patch.Files[0].Data, sound) {
			t.Errorf("%q: files %v, left %+v (%v)", content, r.Patch.Files, r.Left, err)
		}
	}
}

// TestRepairInputs: a fused set gets the largest decode scale of activations, which is the least divisor in compressed-tensors.
func TestRepairInputs(t *testing.T) {
	const attn = layer0 + "self_attn."
	for _, tc := range []struct {
		stored  stored
		suffix  string
		q, k, v float32
	}{{moNVFP4, ".input_scale", 0.25, 1, 0.5}, {ctW4A4, ".input_global_scale", 4, 1, 2}} {
		dir := dense(128, 128).quantize(t, tc.stored)
		d := readDirectory(t, dir)
		d.tensors[attn+"q_proj"+tc.suffix].put(tc.q)
		d.tensors[attn+"k_proj"+tc.suffix].put(tc.k)
		d.tensors[attn+"v_proj"+tc.suffix].put(tc.v)
		d.write(t, dir)
		out, r := repaired(t, dir, "", "vllm")
		after := readDirectory(t, out)
		for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
			if got := after.tensors[attn+name+tc.suffix].data; !bytes.Equal(got, float(1)) {
				t.Errorf("%s%s is %v; %+v", name, tc.suffix, got, r.Changes)
			}
		}
		if len(r.Changes) != 2 {
			t.Errorf("changes %+v", r.Changes)
		}
	}
	// Without a weight beside it, the finding is left, and others are repaired.
	dir := dense(128, 128).with(nil, layer0+"mlp.down_proj").quantize(t, ctW4A4)
	d := readDirectory(t, dir)
	delete(d.tensors, layer0+"mlp.down_proj.input_global_scale")
	d.tensors[attn+"k_proj.weight_global_scale"].put(512)
	d.write(t, dir)
	r, err := PlanRepair(t.Context(), open(t, dir), nil, Options{Clients: chosenClients(t, "vllm")})
	if err != nil || len(r.Left) != 1 || !strings.Contains(r.Left[0].Text, "it is not repaired: no weight beside it has a scale") ||
		len(r.Changes) == 0 || r.Changes[0].Rule != "L01" {
		t.Errorf("repair %+v (%v)", r, err)
	}
}

// TestRepairLeft: what a repair does not change is left, with the reason, also if other findings of the rule are repaired.
func TestRepairLeft(t *testing.T) {
	const attn = layer0 + "self_attn."
	for _, tc := range []struct {
		name   string
		source source
		stored stored
		damage func(d *directory)
		left   map[string]string // rules, and parts of the texts
		lists  bool              // a list of unquantized modules changes
	}{
		{"set with an unquantized weight", dense(128, 128), ctNVFP4, func(d *directory) {
			d.tensors[attn+"k_proj.weight_global_scale"].put(512)
			d.tensors[layer0+"mlp.up_proj.weight_global_scale"].put(512)
			d.unquantize(attn+"v_proj", 128, 128)
			d.ignore(attn + "v_proj")
		}, map[string]string{"set-format": "it is bf16", "set-global": attn + "k_proj"}, false},
		{"global scale that is NaN", dense(128, 128), ctNVFP4, func(d *directory) {
			d.tensors[attn+"k_proj.weight_global_scale"].put(float32(math.NaN()))
			d.tensors[layer0+"mlp.up_proj.weight_global_scale"].put(512)
		}, map[string]string{structure: "must be positive"}, false},
		{"modules that predict further tokens, without the original", dense(128, 128).with(map[string]any{"model_type": "new",
			"num_hidden_layers": 1, "num_nextn_predict_layers": 1}, "mtp.fc"), ctMXFP8, func(d *directory) {
			delete(d.tensors, "mtp.fc.weight")
		}, map[string]string{"mtp-missing": "it is not repaired: give the original checkpoint with --source"}, false},
		{"description inside another member", dense(128, 128), ctMXFP8, func(d *directory) {
			d.quantization()["ignore"], d.group()["targets"] = []any{}, []any{"re:.*"}
			d.config["text_config"] = map[string]any{"quantization_config": d.quantization()}
			delete(d.config, "quantization_config")
		}, map[string]string{"unquantized-unlisted": "it is not repaired: quantization_config is inside"}, false},
		{"spelling alone", dense(128, 128), moFP8, func(d *directory) {
			d.quantization()["quant_algo"] = "FP8_PB_WO"
			d.quantization()["ignore"] = []any{"lm_head", "unknown"} // whatever else is in the list stays
			d.sidecar["quantization"].(map[string]any)["exclude_modules"] = []any{"lm_head", "unknown"}
		}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := tc.source.quantize(t, tc.stored)
			d := readDirectory(t, dir)
			tc.damage(d)
			d.write(t, dir)
			clients := "vllm"
			if tc.stored.convention == "modelopt" {
				clients = "trtllm"
			}
			before := check(t, dir, clients)
			for rule, marked := range marks(t, dir, clients) {
				if _, left := tc.left[rule]; marked == left {
					t.Errorf("%s: repairable is %v", rule, marked)
				}
			}
			out, r := repaired(t, dir, "", clients)
			for rule, text := range tc.left {
				if !slices.ContainsFunc(r.Left, func(f Finding) bool {
					return f.Rule.Name == rule && strings.Contains(f.Tensor+" "+f.Text, text)
				}) {
					t.Errorf("left are %+v of %s, want %s %q", r.Left, texts(before), rule, text)
				}
			}
			for _, f := range check(t, out, clients).Findings {
				if !slices.ContainsFunc(r.Left, func(l Finding) bool { return l.Rule == f.Rule && l.Tensor == f.Tensor }) {
					t.Errorf("found after the repair, and not left: %s %s %s", f.Rule.Name, f.Tensor, f.Text)
				}
			}
			changed := slices.ContainsFunc(r.Changes, func(c Change) bool {
				return strings.HasPrefix(c.Name, hf.ConfigName) &&
					!strings.HasPrefix(c.Text, "quant_algo")
			})
			if changed != tc.lists {
				t.Errorf("changes %+v", r.Changes)
			}
		})
	}
}
