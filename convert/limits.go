package convert

import (
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
)

// noteLimits adds notes of what clients of the convention would reject or misread because of
// the architecture.
func (p *Plan) noteLimits() {
	planned := &checkpoint.Model{Source: p.source.Source, Convention: p.convention, Scheme: p.Scheme}
	for _, d := range p.decisions {
		w := &checkpoint.Weight{Name: d.Name, Shape: d.Shape}
		switch {
		case d.action == quantized:
			w.Format = p.Format
			if p.Quantizer.Arithmetic.FixesGlobal() {
				w.Global = 1
			}
		case d.action == relabeled && d.Quantized():
			w.Format, w.Global = d.Format, d.Global
		}
		planned.Weights = append(planned.Weights, w)
	}
	p.Notes = append(p.Notes, client.Limits(planned)...)
}
