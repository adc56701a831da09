package interop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestTorchJoinedExperts: transformers loads what dequantize writes of single experts that it holds in one tensor a layer,
// and joins from no single ones: every parameter is in the file, and near that of the source.
func TestTorchJoinedExperts(t *testing.T) {
	interpreter := withTorch(t, "transformers does not load experts", architecturesWith...)
	root, result := t.TempDir(), filepath.Join(t.TempDir(), "result.json")
	script(t, interpreter, "joined_experts.py", "make", root)
	sources, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil || len(sources) != 3 {
		t.Fatalf("%q, %v", sources, err)
	}
	arguments := []string{"load", result}
	for _, source := range sources {
		dir := filepath.Join(t.TempDir(), filepath.Base(source))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(source, filepath.Join(dir, "source")); err != nil {
			t.Fatal(err)
		}
		converted(t, source, filepath.Join(dir, "quantized"), func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanQuantize(t.Context(), m, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
		})
		single := openForeign(t, filepath.Join(dir, "quantized"))
		if single.Quantized() < 2*4*3 {
			t.Fatalf("%s: %d weights are quantized", filepath.Base(source), single.Quantized())
		}
		converted(t, filepath.Join(dir, "quantized"), filepath.Join(dir, "decoded"), func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanDequantize(t.Context(), m, safetensors.BF16)
		})
		arguments = append(arguments, dir)
	}
	script(t, interpreter, "joined_experts.py", arguments...)
	var got map[string]struct {
		Rejected            string
		Parameters, Experts int
		Error               float64
	}
	readJSON(t, result, &got)
	for _, dir := range arguments[2:] {
		// An element of MXFP8 is within 2⁻⁴ of its value; those of another place would differ by more than the largest.
		if r := got[dir]; r.Rejected != "" || r.Experts != 4 || r.Error > 0x1p-4 {
			t.Errorf("%s: %+v", filepath.Base(dir), r)
		} else {
			t.Logf("%s: %d parameters, %d of experts, within %.3g", filepath.Base(dir), r.Parameters, r.Experts, r.Error)
		}
	}
}
