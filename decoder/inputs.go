package decoder

import (
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/quant"
)

// optimize prepares the frozen weights of a projection for inputs in a format, which weights in a block
// format take, and those in the format of the inputs. It interleaves codes for products with few tokens
// where kernels support that.
func (p *projection) optimize(inputs quant.Format, threads int) error {
	f := p.frozen
	input := &activation{format: inputs}
	for i := range f.parts {
		if w := f.parts[i].weight.Format; f.parts[i].input == nil && (w.Scaled() || w.Element == inputs.Element) {
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
