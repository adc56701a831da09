package convert

import (
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
)

// noteLimits adds notes of what clients of the convention would reject or misread because of
// the architecture.
func (p *Plan) noteLimits() {
	p.Notes = append(p.Notes, client.Limits(p.planned())...)
}

// planned returns the result as far as it is known.
func (p *Plan) planned() *checkpoint.Model {
	var weights []*checkpoint.Weight
	for _, d := range p.decisions {
		w := &checkpoint.Weight{Name: d.Name, Shape: d.Shape, Dtype: d.Dtype, Joined: d.joint.experts > 0}
		_, encoded := encoderOf(p.formatOf(d))
		switch {
		case encoded: // clients read every type of ggml
		case d.action == Quantize:
			w.Format = d.quantizer.Format
			if d.quantizer.Arithmetic.FixesGlobal() {
				w.Global = 1
			}
		case d.cast != nil:
			if w.Format = d.cast.To; d.cast.unscaled {
				w.Global = 1
			}
		case d.action == Relabel && d.Quantized():
			w.Format, w.Global = d.Format, d.Global
		}
		weights = append(weights, w)
	}
	dtype := p.source.Source.TorchDtype()
	if p.rest != 0 {
		dtype = p.rest.Torch()
	}
	return p.source.Planned(p.convention, p.Scheme, dtype, p.Ignore, weights)
}
