package convert

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// quantize converts a model to dst and returns the plan and its report.
func quantize(t testing.TB, src *checkpoint.Model, dst string, o QuantizeOptions, run RunOptions) (*Plan, []verify.Tensor) {
	t.Helper()
	plan, err := PlanQuantize(t.Context(), src.Source, o)
	if err != nil {
		t.Fatal(err)
	}
	result, err := plan.Run(context.Background(), dst, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range withoutLimits(result.Warnings) {
		t.Errorf("warning: %s", w)
	}
	return plan, result.Tensors
}

// compare verifies dst and fails the test unless its structure is sound.
func compare(t testing.TB, src, dst *checkpoint.Model) *verify.Report {
	t.Helper()
	report, err := verify.Compare(context.Background(), src.Source, dst.Source, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("problem: %s", p)
	}
	return report
}

// errorsOf returns the errors of the weights of dst against another source than that of the
// run.
func errorsOf(t testing.TB, src, dst *checkpoint.Model) []verify.Tensor {
	t.Helper()
	report, err := verify.Compare(context.Background(), src.Source, dst.Source, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report.Tensors
}

// sameReport compares two reports on the same weights bit by bit.
func sameReport(t *testing.T, got, want []verify.Tensor) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d weights, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]); g != w { // as text NaN is NaN, and every bit of a number shows
			t.Errorf("%s, want %s", g, w)
		}
	}
}

// TestRoundTrip quantizes to every block format in every convention that supports it, verifies
// the result, decodes it, and compares the decoded values with the quantized ones.
func TestRoundTrip(t *testing.T) {
	src := openModel(t, writeModel(t, madeModel(), madeConfig))
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		for _, c := range linearConventions(f) {
			t.Run("format="+f.Name+"/convention="+c.Name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "quantized")
				plan, results := quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Convention: c.Name,
					Calibration: needed(c, f)}, RunOptions{})
				dst := openModel(t, dir)
				report := compare(t, src, dst)
				if dst.Quantized() != plan.Count(Quantize) {
					t.Errorf("%d weights are quantized, %d were planned", dst.Quantized(), plan.Count(Quantize))
				}
				sameReport(t, report.Tensors, results)

				back := filepath.Join(t.TempDir(), "decoded")
				plan, err := PlanDequantize(t.Context(), dst.Source, safetensors.F32)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				compare(t, dst, openModel(t, back))
				decoded := errorsOf(t, src, openModel(t, back))
				for i := range decoded {
					decoded[i].Result.Saturated = report.Tensors[i].Result.Saturated // nothing saturates in f32
					decoded[i].Format = report.Tensors[i].Format
				}
				sameReport(t, decoded, report.Tensors)
			})
		}
	}
}
