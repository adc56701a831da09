package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/memory"
)

// A region is memory with its name in errors.
type region struct {
	name string
	memory.Rows
}

// regions returns the memory of a tensor, with names for its codes and its scales.
func (t *Tensor) regions(codes, scales string) [3]region {
	return [...]region{
		{codes, memory.All(t.Codes)}, {scales, memory.All(t.Scales)}, {scales, memory.All(memory.Bytes(t.Scales32))},
	}
}

// region returns the memory of a matrix, without the gaps between its rows.
func (s source) region() region {
	rows, cols := s.rows, s.cols
	return region{"the matrix", memory.Rows{Memory: s.bytes(0, rows), N: rows, Bytes: cols * s.size, Next: s.stride}}
}

// checkApart returns an error if the codes or scales of t share memory with each other or with
// another region.
func (t *Tensor) checkApart(others ...region) error {
	own := t.regions("its codes", "its scales")
	for i, r := range own {
		for _, among := range [...][]region{others, own[i+1:]} {
			for _, other := range among {
				if other.Meet(r.Memory) {
					return fmt.Errorf("With.Into: %s share memory with %s", r.name, other.name)
				}
			}
		}
	}
	return nil
}
