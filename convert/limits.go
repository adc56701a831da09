package convert

import (
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// noteLimits adds what clients of the convention would reject or misread of the result
// because of its architecture.
func (p *Plan) noteLimits() {
	scheme, _ := p.Convention.Scheme(p.Format)
	planned := &checkpoint.Model{Source: p.Source.Source, Convention: p.Convention, Scheme: scheme}
	for _, d := range p.Decisions {
		w := &checkpoint.Weight{Name: d.Weight.Name, Shape: d.Weight.Shape}
		switch {
		case d.Action == Quantize:
			w.Format = p.Format
			if p.Quantizer.Arithmetic == quant.BlockOnly {
				w.Global = 1
			}
		case d.Action == Relabel && d.Weight.Quantized():
			w.Format, w.Global = d.Weight.Format, d.Weight.Global
		}
		planned.Weights = append(planned.Weights, w)
	}
	p.Notes = append(p.Notes, verify.Limits(planned)...)
}
