package decoder

import (
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// statisticsOf returns the statistics of the inputs of a model over a text.
func statisticsOf(t *testing.T, m *Model, tokens []int32) *calibration.Statistics {
	t.Helper()
	path := filepath.Join(t.TempDir(), "statistics.safetensors")
	c := &calibration.Collector{Dir: filepath.Dir(path), Out: path, Hessian: true}
	for i := range m.Layers() {
		var list []calibration.Linear
		for _, l := range m.LinearModules(i) {
			list = append(list, calibration.Linear{Name: l.Name, Width: l.In, Modules: l.Modules, Kind: l.Kind, Stream: l.Stream})
		}
		c.Layers = append(c.Layers, list)
	}
	x, err := m.Embed(tokens)
	for i := 0; i < m.Layers() && err == nil; i++ {
		var failed error
		x, err = m.Layer(i).Forward(x, nn.Observer{Linear: func(linear string, in, _ tensor.Dense) {
			failed = errors.Join(failed, c.Add(linear, in))
		}})
		err = errors.Join(err, failed, c.Finish(t.Context(), i))
	}
	if err := errors.Join(err, c.Join(t.Context())); err != nil {
		t.Fatal(err)
	}
	s, err := calibration.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestCalibratedFamilies calibrates a model of every family, and one inside a multimodal model, and quantizes it with each method.
// Every linear layer has statistics under the name that its weights have, and experts that no token reached fall back. The
// logits for the text of the calibration are closer than with codes to nearest. A folded model has the same.
func TestCalibratedFamilies(t *testing.T) {
	const wrapped = "gemma3 wrapped"
	for _, name := range append(slices.Sorted(maps.Keys(familyConfigs)), wrapped) {
		t.Run(name, func(t *testing.T) {
			configuration, rename := familyConfig(strings.TrimSuffix(name, " wrapped")), same
			if name == wrapped {
				rename = func(name string) string { return strings.Replace(name, "model.", "language_model.model.", 1) }
			}
			dir := writeFamily(t, configuration, rename)
			if name == wrapped {
				configuration = `{"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": ` + configuration + "}"
				if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(configuration), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			src, err := hf.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			m, err := Read(t.Context(), src, LoadOptions{Inference: true})
			if err != nil {
				t.Fatal(err)
			}
			tokens := familyTokens()
			want, err := m.Logits(t.Context(), tokens, 1)
			if err != nil {
				t.Fatal(err)
			}
			s, modules := statisticsOf(t, m, tokens), 0
			for i := range m.Layers() {
				for _, l := range m.LinearModules(i) {
					modules += len(l.Modules)
				}
			}
			testFold(t, src, s, tokens, want)
			errorOf := map[calibration.Method]float64{}
			for _, method := range calibration.Methods() {
				o := convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: checkpoint.Plain().Name, Method: method,
					Statistics: s}
				plan, err := convert.PlanQuantize(t.Context(), src, o)
				if err != nil {
					t.Fatal(err)
				}
				quantized := 0
				for d := range plan.Decisions() {
					if d.Action == convert.Quantize {
						if quantized++; len(d.Shape) == 3 {
							quantized += int(d.Shape[0]) - 1
						}
						if strings.HasSuffix(d.Name, ".gate_up_proj") && len(d.Shape) == 3 { // the matrices of two modules
							quantized += int(d.Shape[0])
						}
					}
				}
				if quantized != modules {
					t.Fatalf("%d modules are quantized, want the %d that the model calibrates", quantized, modules)
				}
				low := filepath.Join(t.TempDir(), "low")
				if _, err := plan.Run(t.Context(), low, convert.RunOptions{}); err != nil {
					t.Fatal(err)
				}
				got, err := loadFamily(t, low, true).Logits(t.Context(), tokens, 1)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range got.Data {
					d := float64(v) - float64(want.Data[i])
					errorOf[method] += d * d
				}
			}
			if n := errorOf[calibration.Nearest]; !(2*errorOf[calibration.Solve] < n) {
				t.Errorf("squared errors of logits by method: %v, want less than half of those to nearest by gptq", errorOf)
			}
		})
	}
}

// testFold folds a model, of which want are the logits.
func testFold(t *testing.T, src *hf.Checkpoint, s *calibration.Statistics, tokens []int32, want tensor.Dense) {
	t.Helper()
	plan, folded, err := convert.PlanFold(t.Context(), src, s, quant.Quantizer{Format: quant.NVFP4}, 1)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "folded")
	if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	m := loadFamily(t, dst, true)
	got, err := m.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	testFoldedStatistics(t, src, s, statisticsOf(t, m, tokens), folded)
	for i, v := range got.Data {
		// Norms that are stored as differences from one are rounded.
		if d := math.Abs(float64(v - want.Data[i])); d > 1e-5*(1+math.Abs(float64(want.Data[i]))) {
			t.Fatalf("logit %d of the folded model, %d inputs: got %g, want %g", i, len(folded), v, want.Data[i])
		}
	}
	t.Logf("%d inputs folded, in %d weights", len(folded), plan.Count(convert.Decode))
}

// testFoldedStatistics compares statistics s, divided by what a model is folded by, with those of the folded model, to the bit where norms
// are not stored as differences from one, which are rounded.
func testFoldedStatistics(t *testing.T, src *hf.Checkpoint, s, want *calibration.Statistics, folded map[string][]float32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "folded.safetensors")
	if err := s.WriteFolded(t.Context(), path, folded); err != nil {
		t.Fatal(err)
	}
	got, err := calibration.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	f, settings, err := family.Read(src.Config)
	if err != nil {
		t.Fatal(err)
	}
	tolerance := 0.0
	for _, one := range f.Folds(settings) {
		if one.PlusOne {
			tolerance = 1e-4
		}
	}
	if tolerance == 0 && got.Identity() != want.Identity() {
		t.Error("mean squares, means or amaxes are not those of the folded model")
	}
	for k, in := range got.Inputs {
		other := want.Inputs[k]
		a, err := in.Hessian()
		b, failed := other.Hessian()
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		for what, both := range map[string][2][]float32{"product": {append(a, float32(in.Amax)), append(b, float32(other.Amax))},
			"mean square": {in.Square, other.Square}, "mean": {in.Mean, other.Mean}} {
			a, b := both[0], both[1]
			largest := max(float64(slices.Max(b)), -float64(slices.Min(b)))
			for i := range a {
				if d := math.Abs(float64(a[i] - b[i])); d > tolerance*largest {
					t.Fatalf("the input of %s, %s %d of %d: got %g, want %g", in.Modules[0], what, i, len(a), a[i], b[i])
				}
			}
		}
	}
}
