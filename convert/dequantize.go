package convert

import (
	"context"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// PlanDequantize plans the decoding of a quantized checkpoint to a floating-point dtype: F32,
// BF16 or F16. Tensors of a GGUF file that are read as F32 count as quantized. config.json then
// names this dtype. Scales of activations are dropped. A GGUF file of a known architecture becomes a
// directory with configuration and tokenizer, even if it is not quantized; another one becomes one
// file. It returns an error if any other checkpoint is not quantized, the structure is damaged, or
// ctx ends.
func PlanDequantize(ctx context.Context, source *hf.Checkpoint, dtype safetensors.Dtype) (*Plan, error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := decodable(m); err != nil {
		return nil, err
	}
	p := newPlan(m, nil, quant.Quantizer{})
	if note := client.Unjoined(m); note != "" {
		p.Notes = append(p.Notes, note)
	}
	for _, w := range m.Weights {
		d := decision{Weight: w}
		if w.Quantized() || w.Decoded() {
			d.action = Decode
			d.stored = []checkpoint.Stored{{Spec: w.DenseSpec(dtype)}}
		} else if w.Rearranged() {
			d.action, d.stored = Decode, []checkpoint.Stored{{Spec: w.DenseSpec(w.Dtype)}}
		} else if isCacheScale(w) || m.ScalesOfValues(w) {
			continue
		}
		p.add(d)
	}
	if err := p.joinForTransformers(dtype); err != nil {
		return nil, err
	}
	if err := p.addText(); err != nil {
		return nil, err
	}
	if err := p.layout(nil); err != nil {
		return nil, err
	}
	return p, p.configure(func(config []byte) ([]byte, error) {
		config, err := configjson.WithoutMembers(config, configjson.QuantizationKeys...)
		if err != nil {
			return nil, err
		}
		if m.Quantized() == 0 && len(m.Decoded) == 0 { // a GGUF file in other dtypes
			return config, nil
		}
		return configjson.WithTorchDtype(config, dtype.Torch())
	})
}
