package convert

import (
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
)

// roundRest stores unquantized weights in BF16 where clients of the convention may compute with BF16 only:
// transformers decodes E8M0 and NVFP4 scales to BF16, and fails if the model is in F32.
func (p *Plan) roundRest(o QuantizeOptions) {
	if p.source.Source.Config == nil || p.convention.Is(checkpoint.Plain()) || o.KeepF32 || !o.needsBF16 && !p.quantizesF32() {
		return
	}
	for i, d := range p.decisions {
		if _, dense := checkpoint.DenseFormat(d.Dtype); d.action == quantized || !dense || d.Weight.Quantized() || d.Dtype == safetensors.BF16 {
			continue
		}
		p.decisions[i].action = decoded
		p.decisions[i].stored = []checkpoint.Stored{{Spec: d.DenseSpec(safetensors.BF16)}}
	}
	p.rest = safetensors.BF16
}

// quantizesF32 reports whether all weights to quantize are in F32.
func (p *Plan) quantizesF32() bool {
	found := false
	for _, d := range p.decisions {
		if d.action == quantized {
			if d.Dtype != safetensors.F32 || d.Weight.Quantized() {
				return false
			}
			found = true
		}
	}
	return found
}
