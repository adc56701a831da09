package convert

import (
	"context"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// PlanDequantize plans the decoding of a quantized checkpoint to a floating-point dtype: F32,
// BF16 or F16. Tensors of a GGUF file that are read as F32 count as quantized. config.json then names this dtype. Scales of activations are dropped. It
// returns an error if the checkpoint is not quantized or its structure is damaged, or if ctx ends.
func PlanDequantize(ctx context.Context, source *hf.Checkpoint, dtype safetensors.Dtype) (*Plan, error) {
	m, err := checkpoint.ReadContext(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := decodable(m); err != nil {
		return nil, err
	}
	p := newPlan(m, nil, quant.Quantizer{})
	for _, w := range m.Weights {
		d := decision{Weight: w}
		if w.Quantized() || w.Decoded() {
			d.action = decoded
			d.stored = []checkpoint.Stored{{Spec: w.DenseSpec(dtype)}}
		} else if isCacheScale(w) {
			continue
		}
		p.add(d)
	}
	if err := p.layout(nil); err != nil {
		return nil, err
	}
	return p, p.configure(func(config []byte) ([]byte, error) {
		config, err := checkpoint.Unconfigure(config)
		if err != nil {
			return nil, err
		}
		return configjson.WithTorchDtype(config, checkpoint.TorchDtype(dtype))
	})
}
