package recipe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
)

// TestOperands compares with the table of Transformer Engine's operands (P/module/linear.py):
// X row, W row, dY row, W col, X col, dY col, and whether a columnwise operand is the
// transpose of the rowwise one's bytes.
func TestOperands(t *testing.T) {
	const shared = "shared"
	for name, want := range map[string][6]string{
		"f32":        {"f32", "f32", "f32", shared, shared, shared},
		"bf16":       {"bf16", "bf16", "bf16", shared, shared, shared},
		"delayed":    {"fp8-tensor", "fp8-tensor", "fp8-tensor-e5m2", shared, shared, shared},
		"tensorwise": {"fp8-tensor", "fp8-tensor", "fp8-tensor-e5m2", shared, shared, shared},
		"blockwise":  {"fp8-vec128 pow2", "fp8-block128 pow2", "fp8-vec128 pow2", shared, "fp8-vec128 pow2", "fp8-vec128 pow2"},
		"mxfp8":      {"mxfp8", "mxfp8", "mxfp8", "mxfp8", "mxfp8", "mxfp8"},
		"nvfp4":      {"nvfp4", "nvfp4-16x16", "nvfp4 sr", shared, "nvfp4 rht", "nvfp4 sr rht"},
		"mxfp6":      {"mxfp6-e2m3", "mxfp6-e2m3", "mxfp6-e2m3", "mxfp6-e2m3", "mxfp6-e2m3", "mxfp6-e2m3"},
		"mxfp4":      {"mxfp4", "mxfp4", "mxfp4", "mxfp4", "mxfp4", "mxfp4"},

		"mxfp4-rht-sr": {"mxfp4", "mxfp4", "mxfp4 sr rht", "mxfp4 rht", "mxfp4 rht", "mxfp4 sr rht"},
	} {
		r, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		columnwise := func(o Operand) string {
			if o.Shared() {
				return shared
			}
			return describe(o.Columnwise)
		}
		got := [6]string{
			describe(r.Input.Rowwise), describe(r.Weight.Rowwise), describe(r.Grad.Rowwise),
			columnwise(r.Weight), columnwise(r.Input), columnwise(r.Grad),
		}
		if got != want {
			t.Errorf("%s: got operands %q, want %q", name, got, want)
		}
	}
}

func describe(q quant.Quantizer) string {
	s := q.Format.Name
	for _, p := range []struct {
		on   bool
		name string
	}{
		{q.PowerOfTwo, "pow2"}, {q.Rounding == format.Stochastic, "sr"}, {q.Hadamard, "rht"},
		{q.Rule != quant.RatioCeil, q.Rule.String()},
	} {
		if p.on {
			s += " " + p.name
		}
	}
	return s
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Recipes() {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		if seen[r.Name] || r.Doc == "" {
			t.Errorf("%s is a duplicate or has no Doc", r.Name)
		}
		seen[r.Name] = true
	}
	if len(seen) != 10 {
		t.Errorf("got %d recipes, want 10", len(seen))
	}
	if _, err := Lookup("nvpf4"); err == nil || !strings.Contains(err.Error(), "nvfp4") {
		t.Errorf("unknown recipe: got error %v", err)
	}
	if d := mustLookup(t, "delayed").Delayed; d != (Delayed{Margin: 0, AmaxHistoryLen: 1024, AmaxComputeAlgorithm: Max}) {
		t.Errorf("delayed: got %+v, want Transformer Engine's default", d)
	}
}

// TestShapes compares with §3.5 of Transformer Engine's checks and Megatron-LM's padding.
func TestShapes(t *testing.T) {
	for name, want := range map[string][3]int{
		"f32": {1, 1, 1}, "bf16": {1, 1, 1}, "delayed": {8, 16, 16}, "tensorwise": {8, 16, 16}, "blockwise": {8, 16, 16},
		"mxfp8": {32, 32, 32}, "mxfp6": {32, 32, 32}, "mxfp4": {32, 32, 32}, "nvfp4": {16, 16, 128},
	} {
		r := mustLookup(t, name)
		rows, cols := r.Divisor()
		if got := [3]int{rows, cols, r.Alignment()}; got != want {
			t.Errorf("%s: got rows, columns and padding %v, want %v", name, got, want)
		}
	}
}

// TestShardRows checks where the weights of recipes and of two variants can be divided.
func TestShardRows(t *testing.T) {
	vary := func(columnwise quant.Quantizer) Recipe {
		r := mustLookup(t, "mxfp8")
		r.Weight.Columnwise = columnwise
		return r
	}
	for name, tc := range map[string]struct {
		r    Recipe
		rows int // 0: nowhere
	}{
		"bf16": {r: mustLookup(t, "bf16")}, "tensorwise": {mustLookup(t, "tensorwise"), 1}, "blockwise": {mustLookup(t, "blockwise"), 128},
		"mxfp8": {mustLookup(t, "mxfp8"), 32}, "nvfp4": {mustLookup(t, "nvfp4"), 16},
		"dgrad in bf16":     {vary(quant.Quantizer{Format: quant.BF16}), 1},
		"scales of columns": {r: vary(quant.Quantizer{Format: quant.FP8Row})},
	} {
		rows, ok := tc.r.ShardRows()
		if ok != (tc.rows > 0) || ok && rows != tc.rows {
			t.Errorf("%s: got %d rows (%t), want %d", name, rows, ok, tc.rows)
		}
	}
}

func mustLookup(t *testing.T, name string) Recipe {
	t.Helper()
	r, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSwitches sets each switch on a recipe and compares the result's description.
func TestSwitches(t *testing.T) {
	six := func(r Recipe) string {
		var s []string
		for _, q := range r.quantizers() {
			s = append(s, describe(*q))
		}
		return strings.Join(s, ", ")
	}
	for _, c := range []struct{ recipe, name, value, want string }{
		{"mxfp8", "fp8_format", "hybrid", "mxfp8, mxfp8, mxfp8, mxfp8, mxfp8-e5m2, mxfp8-e5m2"},
		{"tensorwise", "fp8-format", "E4M3", "fp8-tensor, fp8-tensor, fp8-tensor, fp8-tensor, fp8-tensor, fp8-tensor"},
		{"blockwise", "fp8_format", "hybrid", "fp8-vec128 pow2, fp8-vec128 pow2, fp8-block128 pow2, fp8-block128 pow2, fp8-vec128-e5m2 pow2, " +
			"fp8-vec128-e5m2 pow2"},
		{"mxfp8", "2d_quantization", "true", "mxfp8, mxfp8, mxfp8-32x32, mxfp8-32x32, mxfp8, mxfp8"},
		{"nvfp4", "2d-quantization", "false", "nvfp4, nvfp4 rht, nvfp4, nvfp4, nvfp4 sr, nvfp4 sr rht"},
		{"blockwise", "2d_quantization", "false", "fp8-vec128 pow2, fp8-vec128 pow2, fp8-vec128 pow2, fp8-vec128 pow2, fp8-vec128 pow2, " +
			"fp8-vec128 pow2"},
		{"mxfp8", "scale_rule", "floor", "mxfp8 floor, mxfp8 floor, mxfp8 floor, mxfp8 floor, mxfp8 floor, mxfp8 floor"},
		{"blockwise", "power_2_scale", "false", "fp8-vec128, fp8-vec128, fp8-block128, fp8-block128, fp8-vec128, fp8-vec128"},
		{"nvfp4", "random_hadamard_transform", "none", "nvfp4, nvfp4, nvfp4-16x16, nvfp4-16x16, nvfp4 sr, nvfp4 sr"},
		{"mxfp4", "random_hadamard_transform", "wgrad, dgrad", "mxfp4, mxfp4 rht, mxfp4, mxfp4 rht, mxfp4 rht, mxfp4 rht"},
		{"mxfp4", "random_hadamard_transform", "all", "mxfp4 rht, mxfp4 rht, mxfp4 rht, mxfp4 rht, mxfp4 rht, mxfp4 rht"},
		{"nvfp4", "stochastic_rounding", "false", "nvfp4, nvfp4 rht, nvfp4-16x16, nvfp4-16x16, nvfp4, nvfp4 rht"},
		{"mxfp8", "stochastic_rounding", "true", "mxfp8, mxfp8, mxfp8, mxfp8, mxfp8 sr, mxfp8 sr"},
		{"mxfp6", "grad_format", "mxfp6-e3m2", "mxfp6-e2m3, mxfp6-e2m3, mxfp6-e2m3, mxfp6-e2m3, mxfp6-e3m2, mxfp6-e3m2"},
		{"mxfp8", "weight_format", "mxfp4", "mxfp8, mxfp8, mxfp4, mxfp4, mxfp8, mxfp8"},
		{"mxfp8", "input_format", "mxfp6", "mxfp6-e2m3, mxfp6-e2m3, mxfp8, mxfp8, mxfp8, mxfp8"},
	} {
		r := mustLookup(t, c.recipe)
		if err := r.Set(c.name, c.value); err != nil {
			t.Error(err)
			continue
		}
		if got := six(r); got != c.want {
			t.Errorf("%s, %s=%s:\n got %s\nwant %s", c.recipe, c.name, c.value, got, c.want)
		}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}

	r := mustLookup(t, "delayed")
	for _, s := range [][2]string{{"margin", "2"}, {"amax_history_len", "1"}, {"amax_compute_algo", "most_recent"},
		{"high_precision", "wgrad"}, {"fp8_mha", "true"}} {
		if err := r.Set(s[0], s[1]); err != nil {
			t.Error(err)
		}
	}
	want := mustLookup(t, "delayed")
	want.Delayed, want.HighPrecision[Wgrad], want.Attention = Delayed{2, 1, MostRecent}, true, Attention{true, true}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("delayed with all its switches: got %+v", r)
	}
}

// TestAccumulate checks how products accumulate under the switches, and that products in
// Activations fall back to FP32 where the model has no unit for them.
func TestAccumulate(t *testing.T) {
	for _, c := range []struct {
		recipe string
		set    [][2]string
		want   string // of fprop, dgrad and wgrad
	}{
		{"tensorwise", nil, "fp32 fp32 fp32"},
		{"tensorwise", [][2]string{{"accumulate", "hopper-wgmma"}}, "hopper-wgmma hopper-wgmma hopper-wgmma"},
		{"tensorwise", [][2]string{{"accumulate", "Hopper-WGMMA:256"}}, "hopper-wgmma:256 hopper-wgmma:256 hopper-wgmma:256"},
		{"delayed", [][2]string{{"accumulate", "hopper-wgmma"}, {"use_split_accumulator", "dgrad,wgrad"}},
			"hopper-wgmma hopper-wgmma:128 hopper-wgmma:128"},
		{"delayed", [][2]string{{"accumulate", "hopper-wgmma:64"}, {"use_split_accumulator", "none"}}, "hopper-wgmma hopper-wgmma hopper-wgmma"},
		{"delayed", [][2]string{{"accumulate", "hopper-wgmma"}, {"accumulate", "fp32"}}, "fp32 fp32 fp32"},
		{"bf16", [][2]string{{"accumulate", "blackwell-f16"}}, "blackwell-f16 blackwell-f16 blackwell-f16"},
		{"mxfp8", [][2]string{{"accumulate", "blackwell-mxf8f6f4"}, {"high_precision", "wgrad"}}, "blackwell-mxf8f6f4 blackwell-mxf8f6f4 fp32"},
		{"mxfp8", [][2]string{{"accumulate", "hopper-wgmma"}, {"high_precision", "wgrad"}}, "hopper-wgmma hopper-wgmma hopper-wgmma"},
	} {
		r := mustLookup(t, c.recipe)
		for _, s := range c.set {
			if err := r.Set(s[0], s[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		var got []string
		for g := range gemmNames {
			x, y := r.formats(GEMM(g))
			got = append(got, r.Accumulator(GEMM(g), x, y).String())
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s with %v: got %s, want %s", c.recipe, c.set, got, c.want)
		}
	}
}

// TestUnsupported checks the error for each unsupported value.
func TestUnsupported(t *testing.T) {
	for _, c := range []struct{ recipe, name, value, want string }{
		{"mxfp8", "fp8_format", "e5m2", "pure E5M2 training is not supported"},
		{"mxfp8", "input_format", "mxfp8-e5m2", "pure E5M2 training is not supported"},
		{"mxfp8", "fp8_format", "e3m4", "use e4m3 or hybrid"},
		{"mxfp4", "fp8_format", "hybrid", "no FP8 elements"},
		{"bf16", "2d_quantization", "true", "no weights in blocks"},
		{"tensorwise", "scale_rule", "floor", "no E8M0 scales"},
		{"mxfp8", "scale_rule", "up", "rceil, floor, ceil, even"},
		{"mxfp8", "power_2_scale", "true", "no FP32 scales"},
		{"tensorwise", "random_hadamard_transform", "wgrad", "want a format with blocks"},
		{"mxfp8", "random_hadamard_transform", "bgrad", `unknown product "bgrad"`},
		{"bf16", "stochastic_rounding", "true", "no quantized gradients"},
		{"nvfp4", "stochastic_rounding", "yes", "use true or false"},
		{"tensorwise", "margin", "1", "only the recipe delayed"},
		{"delayed", "margin", "1.5", "want an integer"},
		{"delayed", "margin", "200", "margin: got 200, want -64 to 64"},
		{"delayed", "amax_history_len", "0", "want an integer of at least 1"},
		{"delayed", "amax_history_len", "2000000000", "want at most 65536"},
		{"delayed", "amax_compute_algo", "mean", "max, most_recent"},
		{"delayed", "input_format", "mxfp8", "one scale per tensor"},
		{"blockwise", "fp8_dpa", "true", "want FP8 with one scale per tensor, or MXFP8"},
		{"nvfp4", "fp8_mha", "true", "want FP8 with one scale per tensor, or MXFP8"},
		{"blockwise", "input_format", "fp8-block128", "2D by 2D"},
		{"mxfp8", "block", "16", "unknown switch"},
		{"mxfp8", "accumulate", "hopper", `unknown model "hopper": did you mean hopper-mma or hopper-wgmma?`},
		{"mxfp8", "accumulate", "", "or fp32"},
		{"tensorwise", "accumulate", "hopper-wgmma:0", `got promotion interval "0", want a number of elements, such as hopper-wgmma:128`},
		{"tensorwise", "accumulate", "hopper-wgmma:", "promotion interval"},
		{"tensorwise", "accumulate", "hopper-wgmma:48", "want a multiple of 32"},
		{"tensorwise", "accumulate", "fp32:128", `fp32 has no promotion interval`},
		{"nvfp4", "accumulate", "hopper-wgmma", "fprop: accumulate with hopper-wgmma: nvfp4 × nvfp4-16x16: hopper-wgmma: unsupported " +
			"operands e2m1×e2m1"},
		{"bf16", "accumulate", "blackwell-mxf8f6f4", "accumulate with blackwell-mxf8f6f4: bf16 × bf16"},
		{"delayed", "use_split_accumulator", "all", "set accumulate to a model"},
	} {
		r := mustLookup(t, c.recipe)
		err := r.Set(c.name, c.value)
		if err == nil {
			err = r.Validate()
		} else if !reflect.DeepEqual(r, mustLookup(t, c.recipe)) {
			t.Errorf("%s, %s=%s: recipe changed on error", c.recipe, c.name, c.value)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s=%s: got error %v, want one with %q", c.recipe, c.name, c.value, err, c.want)
		}
	}
	r := mustLookup(t, "nvfp4")
	r.Input.Columnwise.Hadamard = false
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "one operand of wgrad") {
		t.Errorf("Hadamard transform of one operand: got error %v", err)
	}
}

func TestFile(t *testing.T) {
	const text = `
# MXFP8 as a paper has it
base = "mxfp8"
high_precision = ["fprop", "wgrad"]
fp8_format = "hybrid"      # applied before the formats of operands
scale_rule = "floor"
use_split_accumulator = ["dgrad"]
accumulate = "blackwell-mxf8f6f4"

[grad.rowwise]
stochastic_rounding = true

[ weight . columnwise ]
format = "mxfp4"
scale_rule = "even"
`
	path := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Find(path)
	if err != nil {
		t.Fatal(err)
	}
	want := mustLookup(t, "mxfp8")
	want.Name, want.Doc = "mine", "from a file, based on mxfp8"
	for _, q := range want.quantizers() {
		q.Rule = quant.Floor
	}
	want.HighPrecision[Fprop], want.HighPrecision[Wgrad] = true, true
	unit, err := mma.Lookup("blackwell-mxf8f6f4")
	if err != nil {
		t.Fatal(err)
	}
	for g := range want.Accumulate {
		want.Accumulate[g].Model = unit
	}
	want.Accumulate[Dgrad].Promote = 128
	want.Grad.Rowwise.Format, want.Grad.Columnwise.Format = quant.MXFP8E5M2, quant.MXFP8E5M2
	want.Grad.Rowwise.Rounding = format.Stochastic
	want.Weight.Columnwise = quant.Quantizer{Format: quant.MXFP4, Rule: quant.Even}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := Find(filepath.Join(t.TempDir(), "none.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: got %v, want fs.ErrNotExist", err)
	}
}

func TestFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"base = \"mxfp8\"\nfoo = 1\n":                                 `line 2: unknown key "foo"`,
		"base = \"mxfp8\"\n[grad]\nformat = \"mxfp4\"\n":              `line 3: unknown key "format": use one of rowwise, columnwise`,
		"base = \"mxfp8\"\n\n[grad.rowwise]\nrounding = \"sr\"\n":     `line 4: unknown key "rounding"`,
		"base = \"mxfp8\"\ngrad.rowwise.rounding = \"sr\"\n":          `line 2: unknown key "rounding"`,
		"base = \"mxfp8\"\ngrad = { rowwise = { x = 1 } }\n":          `line 2: unknown key "x"`,
		"base = \"mxfp8\"\n[output.rowwise]\nformat = \"x\"\n":        `line 2: unknown key "output"`,
		"base = \"mxfp8\"\ngrad = 3\n":                                "line 2: grad is a table",
		"name = \"x\"\n":                                              "base is missing",
		"base = \"nvfp4\"\nname = \"BF16\"\n":                         "line 2: the name BF16 is taken",
		"base = \"nvfp4\"\nname = \"../x\"\n":                         `line 2: invalid name "../x"`,
		"base = \"nvfp4\"\nname = \"\"\n":                             `line 2: invalid name ""`,
		"base = \"mxfp9\"\n":                                          `line 1: unknown recipe "mxfp9"`,
		"base = \"mxfp8\"\nscale_rule = \"up\"\n":                     `line 2: recipe f: scale_rule: unknown scale rule "up"`,
		"base = \"nvfp4\"\n[input.rowwise]\nscale_rule = \"floor\"\n": `line 3: got nvfp4, want a format with E8M0 scales`,
		"base = \"mxfp8\"\nhigh_precision = [1]\n":                    "line 2: list element: got 1, want a name in quotes",
		"base = \"mxfp8\"\nmargin = 1.5\n":                            "line 2: got 1.5, want a string",
		"base = \"mxfp8\"\nfp8_format = \"e5m2\"\n":                   "line 2: recipe f: fp8_format: pure E5M2",
		"base = \"mxfp8\"\n[grad.rowwise]\nformat = \"fp3\"\n":        `line 3: unknown block format "fp3"`,
		"base = \"mxfp8\"\n[grad.rowwise]\npower_2_scale = true":      "power-of-two scales",
		"base = \"mxfp8\"\nbase = \"mxfp4\"\n":                        "line 2:",
		"base = mxfp8\n":                                              "line 1:",
	} {
		_, err := parse(text, "f")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", text, err, want)
		}
	}
}

// TestEnumerations marshals every value, and checks that a value without a name does not panic.
func TestEnumerations(t *testing.T) {
	for g := Fprop; g <= Wgrad; g++ {
		text, err := g.MarshalText()
		var back GEMM
		if e := errors.Join(err, back.UnmarshalText(text)); e != nil || back != g || string(text) != g.String() {
			t.Errorf("%s: got %q, %s, %v", g, text, back, e)
		}
	}
	for a := Max; a <= MostRecent; a++ {
		text, err := a.MarshalText()
		var back AmaxAlgorithm
		if e := errors.Join(err, back.UnmarshalText(text)); e != nil || back != a || string(text) != a.String() {
			t.Errorf("%s: got %q, %s, %v", a, text, back, e)
		}
	}
	if got := GEMM(7).String() + " " + AmaxAlgorithm(9).String(); got != "GEMM(7) AmaxAlgorithm(9)" {
		t.Errorf("values without a name: got %s", got)
	}
	if _, err := GEMM(7).MarshalText(); err == nil {
		t.Error("GEMM(7).MarshalText: got no error")
	}
	var g GEMM
	if err := g.UnmarshalText([]byte("bgrad")); err == nil {
		t.Error("UnmarshalText(bgrad): got no error")
	}
}

// TestSwitchValues checks that the values in the help of switches are those of their errors.
func TestSwitchValues(t *testing.T) {
	for _, name := range []string{"scale_rule", "amax_compute_algo"} {
		r, err := Lookup("delayed")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(switches, func(s Switch) bool { return s.Name == name })
		want := ": use one of " + strings.ReplaceAll(switches[i].Values, " | ", ", ")
		if err := r.Set(name, "?"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}
