package evaluation

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// following returns a calibration that follows layers quantized to NVFP4, and the options of the conversion.
func following(t *testing.T, dir string) (Calibration, convert.QuantizeOptions) {
	t.Helper()
	c := Calibration{Evaluation: newEvaluation(t), Out: filepath.Join(dir, "statistics.safetensors"), Hessian: true}
	c.Stream = filepath.Join(dir, "scratch")
	q, err := calibration.Solve.Quantizer(quant.Quantizer{Format: quant.NVFP4})
	if err != nil {
		t.Fatal(err)
	}
	c.Follow = &Following{Formats: map[string]string{}, Quantizers: map[string]quant.Quantizer{"nvfp4": q}}
	for layer := range 2 {
		for _, module := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
			"mlp.up_proj", "mlp.down_proj"} {
			c.Follow.Formats[fmt.Sprintf("model.layers.%d.%s.weight", layer, module)] = "nvfp4"
		}
	}
	return c, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Method: calibration.Solve}
}

// collected returns the statistics of a calibration.
func collected(t *testing.T, c Calibration) *calibration.Statistics {
	t.Helper()
	s, _, err := c.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestFollow: the inputs of the second layer are those that the first one gives when it is quantized as package convert does with these
// statistics.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	c, o := following(t, dir)
	o.Statistics = collected(t, c)
	source, err := convert.Open(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(t.Context(), source, o)
	if err != nil {
		t.Fatal(err)
	}
	low := Calibration{Evaluation: c.Evaluation, Out: filepath.Join(dir, "low.safetensors"), Hessian: true}
	low.Model = filepath.Join(dir, "low")
	if _, err := plan.Run(t.Context(), low.Model, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	behind := collected(t, low)
	got, _ := o.Statistics.Of("model.layers.1.self_attn.q_proj")
	want, ok := behind.Of("model.layers.1.self_attn.q_proj")
	if !ok {
		t.Fatal("no input")
	}
	for i, v := range want.Square {
		if math.Abs(float64(got.Square[i]-v)) > 1e-6*float64(v) {
			t.Errorf("column %d of layer 1: mean square %g, want %g", i, got.Square[i], v)
		}
	}
	original := Calibration{Evaluation: c.Evaluation, Out: filepath.Join(dir, "original.safetensors"), Hessian: true}
	plain, _ := collected(t, original).Of("model.layers.1.self_attn.q_proj")
	if bytes.Equal(fmt.Append(nil, plain.Square), fmt.Append(nil, got.Square)) {
		t.Error("the inputs of layer 1 are those of the original")
	}
}

// TestFollowCanceled: an interrupted run resumes to the same bytes, and threads change none.
func TestFollowCanceled(t *testing.T) {
	dir := t.TempDir()
	c, _ := following(t, dir)
	collected(t, c)
	want, err := os.ReadFile(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	c.Out, c.Threads = filepath.Join(dir, "resumed.safetensors"), 3
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // as soon as a layer is complete
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(c.Stream, "layer-00000.safetensors")); err == nil {
				cancel()
			}
		}
	}()
	if _, _, err := c.Statistics(ctx); err == nil {
		t.Fatal("the run was not interrupted")
	}
	collected(t, c)
	if got, err := os.ReadFile(c.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a resumed run gives other bytes (%v)", err)
	}
}
