package convert

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/safetensors"
)

// roundRest stores unquantized weights in BF16 where clients of the convention may compute with BF16 only:
// transformers decodes E8M0 and NVFP4 scales to BF16, and fails if the model is in F32 or F16. In a model in BF16,
// weights of another dtype are so on purpose, and in one in F16 those in F32.
func (p *Plan) roundRest(o QuantizeOptions) {
	model := p.modelDtype()
	switch {
	case p.source.Source.Config == nil, p.convention.Is(checkpoint.Plain()), o.KeepF32, model == safetensors.BF16:
		return
	case !o.needsBF16 && !p.quantizesF32():
		return
	}
	rounded := 0
	for i, d := range p.decisions {
		_, dense := d.Dtype.Dense()
		if d.action == Quantize || !dense || d.Weight.Quantized() || d.Dtype == safetensors.BF16 || model == safetensors.F16 && d.Dtype != model {
			continue
		}
		p.decisions[i].action = Decode
		p.decisions[i].stored = []checkpoint.Stored{{Spec: d.DenseSpec(safetensors.BF16)}}
		rounded++
	}
	p.rest = safetensors.BF16
	if rounded > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d unquantized weights of a model in %s are rounded to bf16, in which clients decode the others",
			rounded, strings.ToLower(model.String())))
	}
}

// modelDtype returns the dtype that the configuration declares, or else that of the first weight to quantize.
func (p *Plan) modelDtype() safetensors.Dtype {
	declared := strings.TrimPrefix(p.source.Source.TorchDtype(), "torch.")
	for _, d := range p.decisions {
		if dtype := d.Dtype; d.action == Quantize && declared == "" {
			return dtype
		}
	}
	for _, d := range []safetensors.Dtype{safetensors.F32, safetensors.F16} {
		if d.Torch() == declared {
			return d
		}
	}
	return safetensors.BF16
}

// quantizesF32 reports whether all weights to quantize are in F32.
func (p *Plan) quantizesF32() bool {
	found := false
	for _, d := range p.decisions {
		if d.action == Quantize {
			if d.Dtype != safetensors.F32 || d.Weight.Quantized() {
				return false
			}
			found = true
		}
	}
	return found
}
