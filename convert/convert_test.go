package convert

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// openModel opens a checkpoint for the length of the test.
func openModel(t testing.TB, arg string) *checkpoint.Model {
	t.Helper()
	source, err := sample.Open(arg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return checkpoint.Read(source)
}

// TestRoundTrip quantizes the sample to every block format in every convention
// that holds it, verifies the result, decodes it, and compares the decoded
// values with the quantized ones.
func TestRoundTrip(t *testing.T) {
	src := openModel(t, "sample:")
	for _, f := range quant.Formats() {
		for _, c := range checkpoint.Conventions() {
			if !c.Holds(f) {
				continue
			}
			t.Run("format="+f.Name+"/convention="+c.Name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "quantized")
				plan, err := PlanQuantize(src, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: c})
				if err != nil {
					t.Fatal(err)
				}
				results, err := plan.Run(context.Background(), dir, RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				dst := openModel(t, dir)
				report, err := verify.Compare(context.Background(), src, dst, verify.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range report.Problems {
					t.Errorf("problem: %s", p)
				}
				if dst.Quantized() != plan.Count(Quantize) {
					t.Errorf("%d weights are quantized, %d were planned", dst.Quantized(), plan.Count(Quantize))
				}
				for i, r := range report.Tensors {
					if r.Result != results[i].Result && c.Name == "plain" {
						t.Errorf("%s: verify says %+v, the conversion said %+v", r.Name, r.Result, results[i].Result)
					}
				}
				back := filepath.Join(t.TempDir(), "decoded")
				plan, err = PlanDequantize(dst, safetensors.F32)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				again, err := verify.Compare(context.Background(), src, openModel(t, back), verify.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range again.Tensors {
					want := report.Tensors[i].Result
					want.Saturated = r.Result.Saturated
					if r.Result != want {
						t.Errorf("%s: decoded values have error %+v, verify said %+v", r.Name, r.Result, want)
					}
				}
			})
		}
	}
}
