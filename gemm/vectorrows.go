package gemm

// The rows of A, as vector kernels read them.

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// passRows is the usual maximum of rows of A in a pass.
const passRows = 4

// prepare divides the rows of A into passes and decodes them.
func (j *job) prepare() {
	p, v := &j.plan, j.plan.kernel.vector
	most := passRows
	if v.most > 0 {
		most = v.most
	}
	rows, height := 0, j.height()
	for j.vector.passes = j.vector.passes[:0]; rows < height; {
		batch := 1
		for batch < min(most, height-rows) { // padding by one row is faster than two passes
			batch *= 2
		}
		j.vector.passes = append(j.vector.passes, vectorPass{rows, batch})
		rows += batch
	}
	group := v.groupCodes()
	width := ceilDiv(p.k, group) * group
	stride := v.words(width)
	j.vector.xStride, j.vector.scales = stride, newVectorScales(&p.b)
	grow(&j.vector.x, rows*stride)
	for _, w := range j.workers[:j.threads] {
		grow(&w.edge, rows*vectorRows)
		grow(&w.sums, 2*passRows*vectorLanes)
	}
	w := j.workers[0]
	grow(&w.scratch.values, width)
	values := w.scratch.values[:width]
	for b := range rows {
		clear(values)
		row := j.rows.from + b
		if b < height {
			p.a.elements(values[:p.k], row, 0)
			if p.a.scales == folded {
				p.a.fold(values[:p.k], row, 0)
			}
		}
		switch x := j.vector.x[b*stride : (b+1)*stride]; {
		case v.interleaved != nil && v.integers:
			p.a.arrangeInterleavedInt8(x, values, row, int8Forms[p.b.t.Format.Element].unit)
		case v.interleaved != nil && p.kernel.panel == panelBF16:
			arrangeInterleaved(x, values)
		case p.kernel.panel == panelInt8:
			p.a.arrangeInt8(x, values, row, int8Forms[p.b.t.Format.Element].unit)
		case p.kernel.panel == panelF32:
			v.arrangeF32(x, values)
		default:
			v.arrange(x, values)
		}
	}
}

// arrange sets x to the values as BF16, in the kernel's order within a chunk of 64 bytes of
// codes. With 8- and 6-bit codes: of each 16, the first eight, then the others. With 4-bit codes: of
// each four, the first, then the second, and so on.
func (v *vectorKernel) arrange(x []uint32, values []float32) {
	const words = 16 // in a vector
	n := 16 / v.bits // vectors of a chunk
	for c := 0; c < len(x); c += n * words {
		chunk := values[2*c : 2*(c+n*words)]
		for i := range n {
			out := x[c+i*words:][:words]
			for j := range out {
				from, next := j/4*8*n+i*8+j%4*2, 1
				if v.bits == 4 {
					from, next = j/4*8*n+j%4*8+i, 4
				}
				out[j] = math.Float32bits(chunk[from])>>16 | math.Float32bits(chunk[from+next])&0xffff0000
			}
		}
	}
}

// arrangeInt8 sets x to row l of A in the order of the int8 kernels. values are its
// elements without scales. Each 128 elements take four vectors:
//
//   - two of integers. With 4-bit codes of B, the even elements, then the odd ones; with
//     wider codes, of each 32 the first 16, then the others.
//   - the initial values of the sums, which subtract the bias of B;
//   - the scale of each dword times the units of both element formats.
func (s *side) arrangeInt8(x []uint32, values []float32, l int, unitB float32) {
	const chunk, words = 128, 16
	unit := int8Forms[s.t.Format.Element].unit
	nibbles := s.kernel.vector.bits == 4
	for c := 0; c < len(values); c += chunk {
		out := x[c/2:][:chunk/2]
		for j := range words {
			var sum int32
			for i := range 2 {
				from, next := c+j/4*32+i*16+j%4*4, 1
				if nibbles {
					from, next = c+j*8+i, 2
				}
				var word uint32
				for b := range 4 {
					n := int32(values[from+b*next] / unit)
					sum += n
					word |= uint32(uint8(n)) << (8 * b)
				}
				out[i*words+j] = word
			}
			out[2*words+j] = uint32(-sum * s.other)
			out[3*words+j] = s.vectorScale(l, min(c+j*8, s.t.StoredCols()-1), unit*unitB) // past the end of the row, multiplied by zeros
		}
	}
}

// vectorScale returns the word for int8 kernels of the scale of row l of A at position k, times
// unit: a float32, or an exponent, which the kernel adds.
func (s *side) vectorScale(l, k int, unit float32) uint32 {
	scale := math.Float32bits(math.Float32frombits(s.scaleWord(l, k)) * unit)
	if s.kernel.vector.scale == format.E8M0 {
		scale -= math.Float32bits(1)
	}
	return scale
}
