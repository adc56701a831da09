package verify

import (
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// quantizers returns the quantizers of Options.Nearest for the block formats of quantized
// weights, by name. Formats with one scale for the whole tensor have none, since that scale
// is not searched.
func quantizers(pairs []pair, nearest func(quant.Format) (quant.Quantizer, error)) (map[string]quant.Quantizer, error) {
	found := map[string]quant.Quantizer{}
	for _, p := range pairs {
		f := p.got.Format
		if _, ok := found[f.Name]; ok || nearest == nil || !p.got.Quantized() || f.PerTensor() {
			continue
		}
		q, err := nearest(f)
		if err != nil {
			return nil, err
		}
		q.Search = quant.NoSearch
		found[f.Name] = q
	}
	return found, nil
}

// nearestOf quantizes a tile in the format of a quantized weight, with its global scale.
func nearestOf(q quant.Quantizer, want tensor.Dense, got *checkpoint.Weight) (*quant.Tensor, error) {
	f := got.Format
	with := quant.With{Threads: 1}
	if f.Global {
		amax := min(got.Global*f.Element.Max()*f.Scale.Max(), math.MaxFloat32)
		with.Amax = &amax
	}
	return q.Rowwise(want, with)
}
