package identify

import (
	"cmp"
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A census has the codes and scales of the first blocks of a weight, as far as they tell the rule of scales.
type census struct {
	f         quant.Format
	global    float32
	divided   bool // the file has the inverse of the global scale, so that its last bits are lost
	typed     bool // the file has rounded FP32 scales to another dtype
	blocks    []codes
	zeros     map[byte]int64 // blocks of zeros by the code of their scale, if it has one byte
	negatives int64          // elements with the code of -0
	smallest  int64          // elements with the smallest magnitude but zero
	weighed   int            // blocks whose likelihood was computed
}

// codes are the codes of a block that has a value and no NaN.
type codes struct {
	scale    float32
	code     byte     // of scale, if it has one byte
	top      int      // number of the largest magnitude, in the order of magnitudes from 0
	elements []uint32 // by number of magnitude
}

// take reads up to limit blocks.
func take(w *checkpoint.Weight, limit int64) (c census, read int64, err error) {
	c = census{f: w.Format, global: w.Global, divided: w.Divided(), zeros: map[byte]int64{}}
	if part, ok := w.Part(checkpoint.Scales); ok && c.f.Scale == format.F32 {
		c.typed = part.Dtype.Bits() < format.F32.StoredBits()
	}
	for t := range w.Tiling(c.f).Tiles(0) {
		if read >= limit {
			break
		}
		q, err := w.ReadCodes(t)
		if err != nil {
			return c, read, err
		}
		read += c.add(q)
	}
	return c, read, nil
}

// add adds the blocks of a tensor, and returns their number.
func (c *census) add(q *quant.Tensor) (blocks int64) {
	e := c.f.Element
	rows, cols := q.ScaleShape()
	width := c.f.PaddedCols(q.Cols())
	all := q.Codes
	if e.StoredBits() < 8 {
		all = make([]byte, q.Rows()*width)
		e.Split(all, q.Codes)
	}
	high, wide := cmp.Or(c.f.Block.Rows, q.Rows()), cmp.Or(c.f.Block.Cols, width)
	for i := range rows {
		for j := range cols {
			blocks++
			one := codes{elements: make([]uint32, magnitudes(e))}
			if q.Scales32 != nil {
				one.scale = q.Scales32[i*cols+j]
			} else {
				one.code = q.Scales[i*cols+j]
				one.scale = c.f.Scale.Decode(uint32(one.code))
			}
			finite, negatives := true, int64(0)
			for row := i * high; row < min((i+1)*high, q.Rows()); row++ {
				for _, code := range all[row*width+j*wide : row*width+min((j+1)*wide, q.Cols())] {
					n, negative := magnitude(e, code)
					if finite = finite && n < len(one.elements); !finite {
						break
					}
					one.elements[n]++
					one.top = max(one.top, n)
					if n == 0 && negative {
						negatives++
					}
				}
			}
			switch {
			case !finite:
			case one.top == 0:
				c.zeros[one.code]++
			default:
				c.negatives += negatives
				c.smallest += int64(one.elements[1])
				c.blocks = append(c.blocks, one)
			}
		}
	}
	return blocks
}

// magnitudes returns the number of magnitudes of an element format, zero included.
func magnitudes(e *format.Scalar) int {
	if e.Integer {
		return 1<<(e.Bits()-1) + 1
	}
	return int(e.MaxCode()) + 1
}

// magnitude returns the number of a code's magnitude in their order, and whether its sign is set. NaN and Inf have numbers from
// magnitudes on.
func magnitude(e *format.Scalar, code byte) (n int, negative bool) {
	if e.Integer {
		v := int(int8(code<<(8-e.Bits()))) >> (8 - e.Bits())
		return max(v, -v), v < 0
	}
	sign := byte(1) << (e.Bits() - 1)
	return int(code &^ sign), code&sign != 0
}

// valueOf returns the magnitude of a number that magnitude returns.
func valueOf(e *format.Scalar, n int) float64 {
	if e.Integer {
		return float64(n) * float64(e.Smallest())
	}
	return math.Abs(float64(e.Decode(uint32(n))))
}
