package convert

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A countedReader counts its reads. Read last ends a context.
type countedReader struct {
	*bytes.Reader
	reads, last int
	cancel      context.CancelFunc
}

func (r *countedReader) ReadAt(p []byte, off int64) (int, error) {
	if r.reads++; r.reads == r.last {
		r.cancel()
	}
	return r.Reader.ReadAt(p, off)
}

// TestPlanCanceled: planning a checkpoint with several global scales reads nothing if its context
// has ended, and nothing after the read during which it ends.
func TestPlanCanceled(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "dst")
	several := map[string][]made{"model.safetensors": {
		{"model.layers.0.self_attn.o_proj.weight", safetensors.BF16, 1, []int64{64, 64}},
		{"model.layers.0.mlp.down_proj.weight", safetensors.BF16, 1, []int64{64, 64}},
		{"model.layers.1.mlp.down_proj.weight", safetensors.BF16, 1, []int64{64, 64}},
	}}
	plan, err := PlanQuantize(t.Context(), openModel(t, writeModel(t, several, madeConfig)).Source,
		QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	file := readFile(t, filepath.Join(dst, "model.safetensors"))
	for name, planning := range map[string]func(context.Context, *hf.Checkpoint) (*Plan, error){
		"quantize": func(ctx context.Context, c *hf.Checkpoint) (*Plan, error) {
			return PlanQuantize(ctx, c, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "plain", Requantize: true})
		},
		"dequantize": func(ctx context.Context, c *hf.Checkpoint) (*Plan, error) {
			return PlanDequantize(ctx, c, safetensors.BF16)
		},
		"relabel": func(ctx context.Context, c *hf.Checkpoint) (*Plan, error) {
			return PlanRelabel(ctx, c, "plain", "", nil)
		},
	} {
		for _, last := range []int{0, 1, 2, 3} {
			ctx, cancel := context.WithCancel(t.Context())
			r := &countedReader{Reader: bytes.NewReader(file), cancel: cancel}
			f, err := safetensors.NewFile(r, int64(len(file)), "model.safetensors")
			if err != nil {
				t.Fatal(err)
			}
			source, err := hf.OpenFile(f, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.reads, r.last = 0, last; last == 0 {
				cancel()
			}
			if _, err := planning(ctx, source); !errors.Is(err, context.Canceled) || r.reads != last {
				t.Errorf("%s, canceled by read %d: %d reads, error %v", name, last, r.reads, err)
			}
			cancel()
		}
	}
}
