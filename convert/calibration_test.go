package convert

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestCalibration: the input scale of a weight is amax/(448·6) in NVFP4 and amax/448 in FP8, or
// its inverse in conventions that divide. Siblings share the largest amax. The constant scale
// is 1.
func TestCalibration(t *testing.T) {
	const bf16 = safetensors.BF16
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"l.0.q_proj.weight", bf16, 1, []int64{32, 64}}, {"l.0.k_proj.weight", bf16, 1, []int64{32, 64}},
		{"l.0.o_proj.weight", bf16, 1, []int64{32, 64}}, {"lm_head.weight", bf16, 1, []int64{32, 64}}}}, madeConfig))
	tomlFile, jsonFile := filepath.Join(t.TempDir(), "amax.toml"), filepath.Join(t.TempDir(), "amax.JSON")
	writeText(t, tomlFile, "[input]\n\"l.0.q_proj\" = 10.0\n\"l.0.k_proj\" = 21\n\"l.0.o_proj\" = 5.25\n")
	writeText(t, jsonFile, `{"input": {"l.0.k_proj": 21, "l.0.o_proj": 5.25}}`)
	for _, tc := range []struct {
		convention, scheme, suffix string
		format                     quant.Format
		joined, single, constant   float32
	}{
		{"modelopt", "NVFP4", ".input_scale", quant.NVFP4, 21.0 / 2688, 5.25 / 2688, 1},
		{"compressed-tensors", "NVFP4", ".input_global_scale", quant.NVFP4, 128, 512, 1},
		{"modelopt", "FP8", ".input_scale", quant.FP8Tensor, 21.0 / 448, 5.25 / 448, 1},
		{"compressed-tensors", "FP8", ".input_scale", quant.FP8Tensor, 21.0 / 448, 5.25 / 448, 1},
	} {
		for _, path := range []string{tomlFile, jsonFile, ""} {
			calibration := &Calibration{ConstantInputs: true}
			want := []float32{tc.constant, tc.constant, tc.constant}
			if path != "" {
				var err error
				if calibration, err = ReadCalibration(path); err != nil {
					t.Fatal(err)
				}
				want = []float32{tc.joined, tc.joined, tc.single}
			}
			dst := filepath.Join(t.TempDir(), "out")
			plan, _ := quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format}, Convention: tc.convention,
				Calibration: calibration}, RunOptions{})
			if name, _ := plan.convention.Scheme(tc.format); name != tc.scheme {
				t.Errorf("%s: the scheme is %s, want %s", tc.convention, name, tc.scheme)
			}
			got := openModel(t, dst)
			compare(t, src, got)
			for i, name := range []string{"q_proj", "k_proj", "o_proj"} {
				if g := global(t, got, "l.0."+name+tc.suffix); g != want[i] {
					t.Errorf("%s %s: the scale of %s is %g, want %g", tc.convention, tc.scheme, name, g, want[i])
				}
			}
		}
	}
}

// TestCalibrationBF16: by the arithmetic of compressed-tensors, scales are those of its generate_gparam and
// calculate_qparams (version 0.20.0, PyTorch 2.15) for amaxes in BF16.
func TestCalibrationBF16(t *testing.T) {
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {{"l.0.o_proj.weight", safetensors.BF16, 1, []int64{32, 64}}}},
		madeConfig))
	for _, tc := range []struct {
		amax          float64
		global, scale float32
	}{
		{1, 2688, 0.002227783203125}, {3.3, 812, 0.007354736328125}, {17.7, 152, 0.03955078125},
		{0.0123, 218112, 2.753734588623047e-05}, {455, 5.90625, 1.015625}, {2688, 1, 6},
	} {
		for _, f := range []struct {
			format quant.Format
			suffix string
			want   float32
		}{{quant.NVFP4, ".input_global_scale", tc.global}, {quant.FP8Tensor, ".input_scale", tc.scale}} {
			dst := filepath.Join(t.TempDir(), "out")
			q := quant.Quantizer{Format: f.format, Arithmetic: quant.DecodeFirstBF16}
			quantize(t, src, dst, QuantizeOptions{Quantizer: q, Convention: "compressed-tensors",
				Calibration: &Calibration{Input: map[string]float64{"l.0.o_proj": tc.amax}}}, RunOptions{})
			if g := global(t, openModel(t, dst), "l.0.o_proj"+f.suffix); g != f.want {
				t.Errorf("%s of amax %g: the scale is %g, want %g", f.format, tc.amax, g, f.want)
			}
		}
	}
}

// TestCalibrationErrors: invalid files, and scales of unknown modules.
func TestCalibrationErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"a.toml", "[input", "not a calibration"},
		{"a.json", `{"input": 3}`, "not a calibration: input: unexpected number"},
		{"a.json", `[1]`, "not a calibration: the file: unexpected array"},
		{"a.toml", "", "the file is empty"},
		{"a.toml", "[inputs]\na = 1", "no values: give the amax of modules, by name, under input, key and value"},
		{"a.toml", "[input]\na = 0.0", "a: the amax is 0, want a number from 1e-30 to 3.4e+38"},
		{"a.toml", "[key]\na = nan", "a: the amax is NaN, want a number from 1e-30 to 3.4e+38"},
		{"a.toml", "[input]\na = " + strings.Repeat("9", 100_000), "out of range"},
		{"a.json", `{"input": {"a": ` + strings.Repeat("9", 100_000) + `}}`, "not a calibration"},
		{"a.toml", "[input]\n" + strings.Repeat("a", 100_000) + " = 0.0", "the amax is 0"},
		{"a.toml", "[value]\na = inf", "a: the amax is +Inf, want a number from 1e-30 to 3.4e+38"},
		{"a.toml", "[input]\na = 1e39", "a: the amax is 1e+39, want a number from"},
		{"a.json", `{"input": {"a": 1e-31}}`, "a: the amax is 1e-31, want a number from"},
	} {
		path := filepath.Join(t.TempDir(), tc.name)
		writeText(t, path, tc.text)
		if _, err := ReadCalibration(path); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") ||
			len(err.Error()) > 2*limits.MaxText {
			t.Errorf("%.100s: error %.3000v, want %q", tc.text, err, tc.want)
		}
	}
	src := openModel(t, writeModel(t, square(), madeConfig))
	for _, tc := range []struct {
		change func(*Calibration)
		want   string
	}{
		{func(c *Calibration) { c.Input["lm_head"] = 1 }, "calibration: lm_head is not a module that takes such a scale"},
		{func(c *Calibration) { delete(c.Input, "model.layers.1.mlp.down_proj") },
			"calibration: the amax of the inputs of model.layers.1.mlp.down_proj is missing (1 of 12 modules)"},
		{func(c *Calibration) { delete(c.Value, "model.layers.2.self_attn.v_proj") },
			"calibration: the amax of the output of model.layers.2.self_attn.v_proj in the KV cache is missing"},
	} {
		c := amaxes()
		tc.change(c)
		_, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Calibration: c})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
	all := amaxes()
	all.Input["lm_head"], all.OfAll = 1, true
	if _, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
		Calibration: all}); err != nil {
		t.Errorf("amaxes of all modules: %v", err)
	}
}

// TestRelabelCalibration: given the same calibration, relabeling a checkpoint without input
// scales stores the same scales as quantizing.
func TestRelabelCalibration(t *testing.T) {
	const bf16 = safetensors.BF16
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"l.0.q_proj.weight", bf16, 1, []int64{32, 64}}, {"l.0.k_proj.weight", bf16, 1, []int64{32, 64}},
		{"l.0.v_proj.weight", bf16, 1, []int64{32, 64}}, {"lm_head.weight", bf16, 1, []int64{32, 64}}}}, madeConfig))
	calibration := func() *Calibration {
		return &Calibration{Input: map[string]float64{"l.0.q_proj": 10, "l.0.k_proj": 21}, Key: map[string]float64{"l.0.k_proj": 3},
			Value: map[string]float64{"l.0.v_proj": 7}}
	}
	bare, with, relabeled := filepath.Join(t.TempDir(), "bare"), filepath.Join(t.TempDir(), "with"), filepath.Join(t.TempDir(), "relabeled")
	o := QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "modelopt"}
	quantize(t, src, bare, o, RunOptions{})
	o.Calibration = calibration()
	quantize(t, src, with, o, RunOptions{})
	m := openModel(t, bare)
	relabel(t, m, relabeled, relabeling{Convention: o.Convention, Calibration: calibration()})
	if !maps.EqualFunc(unrecorded(t, relabeled), unrecorded(t, with), bytes.Equal) {
		t.Error("the relabeled files have other bytes than those that quantize wrote")
	}
	unknown, cache := calibration(), &Calibration{Key: calibration().Key, Value: calibration().Value}
	unknown.Input["l.7.q_proj"] = 1
	for _, tc := range []struct {
		source      *checkpoint.Model
		convention  string
		calibration *Calibration
		want        string
	}{
		{m, "modelopt", unknown, "calibration: l.7.q_proj is not a module that takes such a scale"},
		{openModel(t, with), "modelopt", cache, "the source has scales of a KV cache, which are kept"},
		{m, "mlx", cache, "convention mlx stores no scales of a KV cache: leave them out"},
		{m, "gguf", calibration(), "convention gguf stores no scales of activations for nvfp4: leave the calibration out"},
		{m, "gguf", cache, "convention gguf stores no scales of activations: leave the calibration out"},
	} {
		if _, err := planRelabel(tc.source, relabeling{Convention: tc.convention, Calibration: tc.calibration}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}
