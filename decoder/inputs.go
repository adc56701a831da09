package decoder

import (
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/quant"
)

// Inputs says how inputs of quantized linear layers are quantized.
type Inputs struct {
	Format quant.Format // the zero format: the recipe's Activations

	// Residual also quantizes what Format rounds off, and adds the product of that. With mxint8, both products
	// are of integers, and the sum of both terms differs from an element by at most 1.01·2^-14 of the largest
	// magnitude in its block of 32.
	Residual bool
}

// String returns the name of the format, and x2 behind it where inputs have a residual: mxint8x2.
func (in Inputs) String() string {
	if in.Residual {
		return in.Format.Name + "x2"
	}
	return in.Format.Name
}

// optimize prepares the frozen weights of a projection for inputs, which weights in a block
// format take, and those in the format of the inputs. It interleaves codes for products with few tokens
// where kernels support that.
func (p *projection) optimize(inputs Inputs, threads int) error {
	f := p.frozen
	input := &activation{format: inputs.Format, residual: inputs.Residual}
	for i := range f.parts {
		if w := f.parts[i].weight.Format; f.parts[i].input == nil && (w.Scaled() || w.Element == inputs.Format.Element) {
			f.parts[i].input = input
		}
	}
	for i, part := range f.parts {
		if in := part.input; in == nil || !part.weight.Format.Scaled() || in.format.Element != quant.BF16.Element && !in.format.Element.Integer {
			continue
		}
		inside, err := gemm.Interleave(part.weight, part.input.format, gemm.Options{Threads: threads})
		switch {
		case err == nil:
			f.parts[i].weight, f.parts[i].interleaved = nil, inside
		case !errors.Is(err, errors.ErrUnsupported):
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}
