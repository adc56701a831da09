package convert

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// rules returns rules as --rule has them.
func rules(t *testing.T, texts ...string) (all []Rule) {
	t.Helper()
	for _, text := range texts {
		at := strings.LastIndexByte(text, '=')
		r, err := ParseRule(text[:at], text[at+1:])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// layered is a checkpoint of four layers with attention, two with a dense MLP and two with experts, in two files.
func layered() map[string][]made {
	const bf16 = safetensors.BF16
	shards := map[string][]made{shard1: {{"model.embed_tokens.weight", bf16, 1, []int64{128, 128}}},
		shard2: {{"model.norm.weight", bf16, 1, []int64{128}}, {"lm_head.weight", bf16, 1, []int64{128, 128}}}}
	for i := range 4 {
		layer := fmt.Sprintf("model.layers.%d.", i)
		names := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}
		if i%2 == 0 {
			names = append(names, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
		} else {
			for e := range 2 {
				for _, part := range []string{"gate_proj", "up_proj", "down_proj"} {
					names = append(names, fmt.Sprintf("mlp.experts.%d.%s", e, part))
				}
			}
		}
		for j, name := range names {
			shard := []string{shard1, shard2}[(i+j)%2]
			shards[shard] = append(shards[shard], made{layer + name + ".weight", bf16, 0.01 * float32(1+i+3*j), []int64{128, 128}})
		}
	}
	return shards
}

// TestRules: each weight has the codes and scales that a conversion to its format alone gives it, the files are sound, and the
// formats are those of the first rule that matches.
func TestRules(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	texts := []string{`layers\.3\.=keep`, `self_attn\.[qkv]_proj=fp8-row`, `o_proj=fp8-block128`, `experts=mxfp8`}
	want := func(name string) string {
		switch {
		case strings.Contains(name, "layers.3."), !strings.Contains(name, "layers."):
			return "bf16"
		case strings.Contains(name, "o_proj"):
			return "fp8-block128"
		case strings.Contains(name, "self_attn"):
			return "fp8-row"
		case strings.Contains(name, "experts"):
			return "mxfp8"
		}
		return "nvfp4"
	}
	for _, convention := range []string{"compressed-tensors", "plain", "modelopt"} {
		t.Run(convention, func(t *testing.T) {
			o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: convention, Rules: rules(t, texts...)}
			dst := filepath.Join(t.TempDir(), "dst")
			plan, report := quantize(t, src, dst, o, RunOptions{Threads: 3})
			got := openModel(t, dst)
			if len(got.Problems) > 0 {
				t.Fatalf("problems: %v", got.Problems)
			}
			single := map[string]*checkpoint.Model{}
			for _, f := range []quant.Format{quant.NVFP4, quant.FP8Row, quant.FP8Block, quant.MXFP8} {
				alone := filepath.Join(t.TempDir(), f.Name)
				quantize(t, src, alone, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: convention}, RunOptions{})
				single[f.Name] = openModel(t, alone)
			}
			for i, w := range got.Weights {
				name := want(w.Name)
				if w.FormatName() != name || report[slices.IndexFunc(report, func(r verify.Tensor) bool { return r.Name == w.Name })].Format != name {
					t.Errorf("weight %d %s is %s, want %s", i, w.Name, w.FormatName(), name)
				}
				if alone := single[name]; alone != nil {
					other, _ := alone.Lookup(w.Name)
					sameStored(t, w, other)
				}
			}
			if shares := plan.Shares(); len(shares) != 4 || shares[3].Format.Name != "nvfp4" || shares[3].Weights != 6 {
				t.Errorf("shares: %v", shares)
			}
			compare(t, src, got)
			again := filepath.Join(t.TempDir(), "again")
			quantize(t, src, again, o, RunOptions{Threads: 1})
			sameFiles(t, again, dst)
		})
	}
}

// sameStored compares codes, scales and the global scale of two weights.
func sameStored(t *testing.T, a, b *checkpoint.Weight) {
	t.Helper()
	rows, cols := a.Matrix()
	whole := checkpoint.Tile{To: rows, ToCol: cols}
	x, err := a.ReadCodes(whole)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.ReadCodes(whole)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x.Codes, y.Codes) || !bytes.Equal(x.ScaleBytes(), y.ScaleBytes()) || a.Global != b.Global {
		t.Errorf("%s differs from a conversion to %s alone", a.Name, a.Format)
	}
}

// TestRulesRelabeled stores a mixed checkpoint in another convention and back: the files are the same.
func TestRulesRelabeled(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	quantize(t, src, a, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "compressed-tensors",
		Rules: rules(t, "self_attn=fp8-row", `layers\.0\.mlp=mxfp8:MXFP8A16`)}, RunOptions{})
	first := openModel(t, a)
	b := filepath.Join(dir, "b")
	relabel(t, first, b, relabeling{Convention: "plain"})
	sameCodes(t, first, openModel(t, b))
	back := filepath.Join(dir, "back")
	relabel(t, openModel(t, b), back, relabeling{Convention: "compressed-tensors"})
	sameFiles(t, back, a)
	c := filepath.Join(dir, "c")
	relabel(t, first, c, relabeling{Convention: "modelopt"})
	other := openModel(t, c)
	sameCodes(t, first, other)
	if len(other.Problems) > 0 || other.Scheme != "MIXED_PRECISION" {
		t.Errorf("scheme %s, problems %v", other.Scheme, other.Problems)
	}
	var config struct {
		Quantization struct {
			Layers map[string]map[string]any `json:"quantized_layers"`
		}
	}
	unmarshal(t, filepath.Join(c, "hf_quant_config.json"), &config)
	if got := fmt.Sprint(config.Quantization.Layers["model.layers.0.mlp.up_proj"], len(config.Quantization.Layers)); got !=
		"map[group_size:32 quant_algo:MXFP8] 34" {
		t.Errorf("quantized_layers: %s", got)
	}
}

// TestRulesTargets: exactly one group of compressed-tensors selects each quantized module, and none another.
func TestRulesTargets(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	plan, err := PlanQuantize(context.Background(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
		Rules: rules(t, `layers\.1\.=keep`, "self_attn=fp8-row", `layers\.2\.mlp=mxfp8`)})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Quantization struct {
			Format string
			Groups map[string]struct {
				Format  string
				Targets []string
			} `json:"config_groups"`
		} `json:"quantization_config"`
	}
	if err := json.Unmarshal(plan.Config(), &config); err != nil {
		t.Fatal(err)
	}
	if got := config.Quantization.Format; got != "mixed-precision" || len(config.Quantization.Groups) != 3 {
		t.Errorf("format %q, %d groups", got, len(config.Quantization.Groups))
	}
	layouts := map[string]string{"nvfp4": "nvfp4-pack-quantized", "fp8-row": "float-quantized", "mxfp8": "mxfp8-quantized"}
	for d := range plan.Decisions() {
		var found []string
		for _, group := range config.Quantization.Groups {
			for _, target := range group.Targets {
				pattern, ok := strings.CutPrefix(target, "re:")
				if ok && regexp.MustCompile("^(?:"+pattern+")").MatchString(module(d.Name)) || target == module(d.Name) {
					found = append(found, group.Format)
				}
			}
		}
		switch layout := layouts[d.Format]; {
		case d.Action == Quantize && !slices.Equal(found, []string{layout}):
			t.Errorf("%s is %s, and its groups are %q", d.Name, d.Format, found)
		case d.Action != Quantize && len(found) > 0:
			t.Errorf("%s is not quantized, and its groups are %q", d.Name, found)
		}
	}
}

// TestRulesRejected lists errors of rules.
func TestRulesRejected(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	for _, tc := range []struct {
		convention string
		rules      []string
		format     quant.Format
		want       string
	}{
		{"", []string{"self_atn=fp8-row"}, quant.NVFP4, "the rule pattern 'self_atn' matches no weight"},
		{"", []string{"q_proj=fp8-row"}, quant.NVFP4,
			"model.layers.0.self_attn.q_proj.weight is fp8-row and model.layers.0.self_attn.v_proj.weight is nvfp4, " +
				"but engines fuse q_proj, k_proj, v_proj into one matrix"},
		{"", []string{"gate_proj=keep"}, quant.NVFP4, "model.layers.1.mlp.experts.1.gate_proj.weight is unquantized, but engines have " +
			"one format"},
		{"", []string{`mlp\.down_proj=mxfp8`, `experts\.\d+\.down_proj=mxfp8`}, quant.NVFP4,
			"engines have one format for all of model.layers.1.mlp.experts"},
		{"", []string{"layers=mxfp8", "self_attn=fp8-row"}, quant.NVFP4, "the rule 'self_attn=fp8-row' quantizes no weight"},
		{"", []string{"lm_head=mxfp8"}, quant.NVFP4, "the rule 'lm_head=mxfp8' quantizes no weight: lm_head.weight stays as it is (output " +
			"head): include it, too"},
		{"mlx", []string{"self_attn=mxfp8"}, quant.NVFP4, "convention mlx stores one block format in a checkpoint, not nvfp4, mxfp8: choose " +
			"convention compressed-tensors or "},
		{"compressed-tensors", []string{"self_attn=mxfp6-e2m3"}, quant.NVFP4, "convention compressed-tensors does not support mxfp6-e2m3"},
		{"", []string{"self_attn=fp8-row:FP8"}, quant.NVFP4, `no scheme "FP8" for fp8-row`},
		{"", []string{"self_attn=mxfp8:MXFP8", "mlp=mxfp8:MXFP8A16"}, quant.NVFP4, "the rules name the schemes MXFP8 and MXFP8A16 for mxfp8"},
		{"", []string{"self_attn=keep"}, quant.Format{}, "no format"},
		{"", []string{"self_attn=bf16"}, quant.NVFP4, "bf16 has no scales"},
	} {
		_, err := PlanQuantize(context.Background(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format},
			Convention: tc.convention, Rules: rules(t, tc.rules...)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q in %q: error %v, want %q", tc.rules, tc.convention, err, tc.want)
		}
	}
	_, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Scheme: "MXFP8A16", Rules: rules(t, ".=mxfp8")})
	if err == nil || !strings.Contains(err.Error(), "no format is named for weights without a rule") {
		t.Errorf("error %v", err)
	}
	var schemes *Plan
	schemes, err = PlanQuantize(t.Context(), src.Source, QuantizeOptions{Rules: rules(t, "self_attn=mxfp8:MXFP8A16", "mlp=mxfp8")})
	noted := func(p *Plan, want string) bool {
		return slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, want) })
	}
	if err != nil || !noted(schemes, "is that of all weights in mxfp8") {
		t.Errorf("error %v, want a note", err)
	}
	later := rules(t, "layers=mxfp8", "self_attn=fp8-row")
	later[1].Default = true
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Rules: later})
	if err != nil || !noted(plan, "'self_attn=fp8-row' quantizes no weight") {
		t.Errorf("error %v, want a note", err)
	}
	plan, err = PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
		Exclude: patterns("q_proj")})
	if err != nil || !noted(plan, "exclude all of them or none") {
		t.Errorf("error %v, want a note", err)
	}
	for _, bad := range []struct{ pattern, to, want string }{
		{"(", "mxfp8", "not a regular expression"}, {"a", "nvfp5", "unknown"}, {"a", "keep:X", "unknown"},
	} {
		if _, err := ParseRule(bad.pattern, bad.to); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s=%s: error %v, want %q", bad.pattern, bad.to, err, bad.want)
		}
	}
}

// TestRulesAlone: without a format for the others, weights that no rule matches stay as they are.
func TestRulesAlone(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	dst := filepath.Join(t.TempDir(), "dst")
	plan, _ := quantize(t, src, dst, QuantizeOptions{Rules: rules(t, "self_attn=fp8-row:FP8_DYNAMIC")}, RunOptions{})
	if plan.Format.Name != "fp8-row" || plan.Scheme != "FP8_DYNAMIC" || plan.Count(Quantize) != 16 {
		t.Errorf("%d weights in %s, scheme %s", plan.Count(Quantize), plan.Format, plan.Scheme)
	}
	if got := openModel(t, dst); len(got.Problems) > 0 || got.Scheme != "FP8_DYNAMIC" {
		t.Errorf("scheme %s, problems %v", got.Scheme, got.Problems)
	}
}

// TestRulesResumeThreads ends runs of a mixed plan and resumes them with three threads: the bytes are those of an uninterrupted run.
// Another rule is another plan.
func TestRulesResumeThreads(t *testing.T) {
	src := writeModel(t, tiledModel(), madeConfig)
	planned := func(texts ...string) *Plan {
		plan, err := PlanQuantize(t.Context(), openModel(t, src).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
			Rules: rules(t, texts...)})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	want, err := planned("self_attn=fp8-tensor").Run(t.Context(), whole, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n += 2 {
		dst := filepath.Join(dir, fmt.Sprint("dst", n))
		if !interrupted(t, planned("self_attn=fp8-tensor"), dst, n) {
			break
		}
		if n == 3 {
			_, err := planned("self_attn=mxfp8").Run(t.Context(), dst, RunOptions{Resume: true, Threads: 3})
			if err == nil || !strings.Contains(err.Error(), ErrChanged.Error()) && !strings.Contains(err.Error(), "options") {
				t.Errorf("another rule: error %v", err)
			}
		}
		got, err := planned("self_attn=fp8-tensor").Run(t.Context(), dst, RunOptions{Resume: true, Threads: 3})
		if err != nil {
			t.Fatal(err)
		}
		sameResult(t, dst, whole)
		sameReport(t, got.Tensors, want.Tensors)
	}
}

// TestRulesForClient: a client gets formats that it reads together, or there is an error.
func TestRulesForClient(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	for _, tc := range []struct{ client, rule, want, scheme string }{
		{"vllm", "self_attn=mxfp8", "", "MXFP8"},
		{"sglang", "self_attn=fp8-row", "", "FP8_DYNAMIC"},
		{"sglang", "self_attn=mxfp8", "", "MXFP8"},                                // in modelopt
		{"vllm", `self_attn=mxfp8:MXFP8A16 layers\.0\.mlp=mxfp8`, "", "MXFP8A16"}, // that of one rule is that of both
		{"trtllm", "self_attn=mxfp8", "trtllm does not read mxfp8", ""},
		{"mlx", "self_attn=mxfp8", "mlx reads nvfp4, mxfp8 together in no convention that is written", ""},
		{"mlx", "self_attn=fp8-row", "mlx does not read fp8-row", ""},
	} {
		plan, err := PlanQuantize(context.Background(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
			Client: tc.client, Rules: rules(t, strings.Fields(tc.rule)...)})
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s, %s: error %v, want %q", tc.client, tc.rule, err, tc.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s, %s: %v", tc.client, tc.rule, err)
			continue
		}
		if name, _ := plan.convention.Scheme(rules(t, strings.Fields(tc.rule)...)[0].Quantizer.Format); name != tc.scheme ||
			plan.Scheme != plan.convention.MixedScheme() {
			t.Errorf("%s, %s: scheme %s in %s, want %s", tc.client, tc.rule, name, plan.Scheme, tc.scheme)
		}
	}
}

// TestRulesGGUF: tensors of a GGUF file have the types of the rules, BF16 too, with the bits of files of one type.
func TestRulesGGUF(t *testing.T) {
	src := openSample(t)
	dst := filepath.Join(t.TempDir(), "dst.gguf")
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "gguf",
		Rules: rules(t, `layers\.0\.=bf16`, "self_attn=q8_0", "gate_proj|up_proj=nvfp4")}
	for i, r := range o.Rules {
		var err error
		if o.Rules[i].Quantizer, err = profile.For(r.Quantizer.Format).Quantizer(r.Quantizer.Format); err != nil {
			t.Fatal(err)
		}
	}
	quantize(t, src, dst, o, RunOptions{})
	got := openGGUF(t, dst)
	for _, f := range []quant.Format{quant.MXFP4, quant.Q8_0, quant.NVFP4} {
		alone := openGGUF(t, toGGUF(t, src, f))
		n := 0
		for _, w := range got.Weights {
			if w.Quantized() && w.Format.Name == f.Name {
				other, _ := alone.Lookup(w.Name)
				sameStored(t, w, other)
				n++
			}
		}
		if n == 0 {
			t.Errorf("no weight is %s", f)
		}
	}
	for _, w := range got.Weights {
		if strings.Contains(w.Name, "layers.0.") && w.Quantized() {
			t.Errorf("%s is %s", w.Name, w.FormatName())
		}
	}
	back := filepath.Join(t.TempDir(), "back")
	relabel(t, got, back, relabeling{Convention: "plain"})
	sameCodes(t, got, openModel(t, back))
}

// TestRulesRequantize: a second pass with rules changes the weights that they name, to the values of dequantize and quantize, and no
// code of the others.
func TestRulesRequantize(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	quantize(t, src, a, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Calibration: &Calibration{ConstantInputs: true,
		ConstantCache: true}}, RunOptions{})
	first := openModel(t, a)
	b := filepath.Join(dir, "b")
	o := QuantizeOptions{Requantize: true, Rules: rules(t, "self_attn=fp8-row")}
	larger := func(dst string, o QuantizeOptions) { // with a warning
		t.Helper()
		plan, err := PlanQuantize(t.Context(), first.Source, o)
		if err == nil {
			_, err = plan.Run(t.Context(), dst, RunOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	larger(b, o)
	second := openModel(t, b)
	if len(second.Problems) > 0 || second.Scheme != "mixed-precision" {
		t.Fatalf("scheme %s, problems %v", second.Scheme, second.Problems)
	}
	all := filepath.Join(dir, "all")
	larger(all, QuantizeOptions{Requantize: true, Quantizer: quant.Quantizer{Format: quant.FP8Row}})
	alone := openModel(t, all)
	for _, w := range second.Weights {
		other := first
		if strings.Contains(w.Name, "self_attn") && w.Quantized() {
			other = alone
		}
		if was, ok := other.Lookup(w.Name); !ok {
			t.Errorf("%s is new", w.Name)
		} else if w.FormatName() != was.FormatName() {
			t.Errorf("%s is %s, and was %s", w.Name, w.FormatName(), was.FormatName())
		} else if w.Quantized() {
			sameStored(t, w, was)
			scale, has := w.InputScale()
			before, had := was.InputScale()
			if other == first && (scale != before || has != had || !has) {
				t.Errorf("%s: the scale of its inputs is %g, and was %g", w.Name, scale, before)
			}
		}
	}
	if len(second.Weights) != len(first.Weights) {
		t.Errorf("%d weights, and there were %d", len(second.Weights), len(first.Weights))
	}
	_, err := PlanQuantize(t.Context(), first.Source, QuantizeOptions{Requantize: true, Convention: "mlx", Rules: rules(t, "self_attn=mxfp8")})
	if err == nil || !strings.Contains(err.Error(), "convention mlx stores one block format in a checkpoint, not mxfp8, nvfp4") {
		t.Errorf("error %v", err)
	}
	_, err = PlanQuantize(t.Context(), first.Source, QuantizeOptions{Requantize: true, Rules: rules(t, "q_proj=nvfp4:NVFP4"),
		Calibration: &Calibration{ConstantInputs: true}})
	if err == nil || !strings.Contains(err.Error(), "q_proj.weight and model.layers.0.self_attn.v_proj.weight would have different global "+
		"scales") {
		t.Errorf("error %v", err)
	}
	plan, err := PlanQuantize(t.Context(), first.Source, QuantizeOptions{Requantize: true, Rules: rules(t, "o_proj=nvfp4")})
	if err != nil || !slices.ContainsFunc(plan.Notes,
		func(n string) bool { return strings.Contains(n, "keep the scales of their activations") }) {
		t.Fatalf("error %v: want a note of lost activations", err)
	}
	if _, err := PlanQuantize(t.Context(), first.Source, QuantizeOptions{Requantize: true, Rules: rules(t, "q_proj=fp8-row")}); err == nil ||
		!strings.Contains(err.Error(), "q_proj.weight is fp8-row and model.layers.0.self_attn.v_proj.weight is nvfp4, but engines fuse") {
		t.Errorf("error %v", err)
	}
}

// TestRulesRequantizeConvention: the result has the convention of the source, and a quantized head that no rule matches its codes.
func TestRulesRequantizeConvention(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	for _, convention := range []string{"modelopt", "plain", "compressed-tensors"} {
		first := filepath.Join(t.TempDir(), "first")
		o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: convention, Include: patterns("lm_head")}
		quantize(t, src, first, o, RunOptions{})
		from := openModel(t, first)
		plan, err := PlanQuantize(t.Context(), from.Source, QuantizeOptions{Requantize: true, Quantizer: quant.Quantizer{Format: quant.MXFP8},
			Rules: rules(t, "o_proj=fp8-row")})
		if err != nil || plan.Convention != convention {
			t.Fatalf("%s: error %v, got %v", convention, err, plan)
		}
		for d := range plan.Decisions() {
			if d.Name == "lm_head.weight" && (d.Action != Relabel || d.Format != "nvfp4") {
				t.Errorf("%s: the head is %s, %s", convention, d.Format, d.Action)
			}
		}
	}
}

// TestRulesLackInput: codes whose new scheme stores a scale of activations cannot be kept without one.
func TestRulesLackInput(t *testing.T) {
	src, a := openModel(t, writeModel(t, layered(), madeConfig)), filepath.Join(t.TempDir(), "a")
	quantize(t, src, a, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}}, RunOptions{})
	_, err := PlanQuantize(t.Context(), openModel(t, a).Source,
		QuantizeOptions{Requantize: true, Calibration: &Calibration{ConstantInputs: true},
			Rules: rules(t, "mlp=nvfp4:NVFP4", ".=keep")})
	if err == nil || !strings.Contains(err.Error(), "keeps its codes, but scheme NVFP4 stores a scale of its activations") {
		t.Errorf("error %v", err)
	}
}

// TestRulesFingerprint: the behavior of a rule's quantizer is a part of the plan.
func TestRulesFingerprint(t *testing.T) {
	src := openModel(t, writeModel(t, layered(), madeConfig))
	found := map[string]bool{}
	for _, powerOfTwo := range []bool{false, true} {
		o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Rules: rules(t, "self_attn=fp8-row")}
		o.Rules[0].Quantizer.PowerOfTwo = powerOfTwo
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		found[plan.fingerprint()] = true
	}
	if len(found) != 2 {
		t.Error("two behaviors have one fingerprint")
	}
}
