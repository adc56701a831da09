package comm

import (
	"iter"

	"github.com/microscale-go/microscale/internal/parallel"
)

// A Vector is a sequence of values in several slices, one after the other, such as the gradients of
// several parameters. The slices of a vector have the same lengths on every rank.
type Vector [][]float32

// Len returns the number of values.
func (v Vector) Len() (n int) {
	for _, x := range v {
		n += len(x)
	}
	return n
}

// chunkElements is the number of values that are encoded, decoded and added at a time, so that they
// stay in the caches. It is a multiple of all block sizes.
const chunkElements = 1 << 15

// Chunks yields the values in order, in slices of at most 32768. A slice is memory of v, or a copy if
// it extends over several slices of v.
func (v Vector) Chunks() iter.Seq[[]float32] {
	return func(yield func([]float32) bool) {
		n := v.Len()
		scratch := make([]float32, min(n, chunkElements))
		for from := 0; from < n; from += chunkElements {
			if !yield(v.load(scratch, from, min(n, from+chunkElements))) {
				return
			}
		}
	}
}

// load returns the values [from, to): memory of v if they are in one slice, otherwise a copy in scratch.
func (v Vector) load(scratch []float32, from, to int) []float32 {
	x := scratch[:0]
	v.visit(from, to, func(part []float32) {
		if len(part) == to-from {
			x = part
		} else {
			x = append(x, part...)
		}
	})
	return x
}

// store sets the values from an index on to x, which may be the result of load.
func (v Vector) store(x []float32, from int) {
	v.visit(from, from+len(x), func(part []float32) {
		x = x[copy(part, x):]
	})
}

// visit calls f for the parts of slices that have the values [from, to).
func (v Vector) visit(from, to int, f func(part []float32)) {
	for _, x := range v {
		if from < min(to, len(x)) {
			f(x[from:min(to, len(x))])
		}
		from, to = max(0, from-len(x)), max(0, to-len(x))
	}
}

// Like returns a vector in the memory of x, with slices as long as those of v.
func (v Vector) Like(x []float32) Vector {
	w := make(Vector, len(v))
	for i, part := range v {
		w[i], x = x[:len(part)], x[len(part):]
	}
	return w
}

// split returns a vector for each part of x between cuts.
func split(x []float32, cuts []int) []Vector {
	parts := make([]Vector, len(cuts)-1)
	for i := range parts {
		parts[i] = Vector{x[cuts[i]:cuts[i+1]]}
	}
	return parts
}

// messageSize returns the bytes of a message of n values: encoded chunks, one after the other.
func messageSize(wire Wire, n int) int {
	return n/chunkElements*wire.Size(chunkElements) + wire.Size(n%chunkElements)
}

// chunk returns the bytes of a message that encode the values [from, to), a chunk.
func chunk(message []byte, wire Wire, from, to int) []byte {
	first := messageSize(wire, from)
	return message[first : first+wire.Size(to-from)]
}

// chunks calls f for the chunks [from, to) of n values, in parallel, with scratch buffers of a chunk each.
func (g *Group) chunks(n, buffers int, f func(from, to int, scratch [][]float32)) {
	parallel.For((n+chunkElements-1)/chunkElements, 1, g.threads, func(first, last int) {
		l := &lease{buffers: &g.job.buffers}
		scratch := make([][]float32, buffers)
		for i := range scratch {
			scratch[i] = l.floats(min(n, chunkElements))
		}
		for k := first; k < last; k++ {
			f(k*chunkElements, min(n, (k+1)*chunkElements), scratch)
		}
		l.end()
	})
}

// encode rounds the values of v to the format of a wire, in a message.
func (g *Group) encode(message []byte, v Vector, wire Wire) {
	g.chunks(v.Len(), 1, func(from, to int, scratch [][]float32) {
		wire.Encode(chunk(message, wire, from, to), v.load(scratch[0], from, to))
	})
}

// decode sets v to the values of a message.
func (g *Group) decode(v Vector, message []byte, wire Wire) {
	g.chunks(v.Len(), 1, func(from, to int, scratch [][]float32) {
		x := v.load(scratch[0], from, to)
		wire.Decode(x, chunk(message, wire, from, to))
		v.store(x, from)
	})
}
