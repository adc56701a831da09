package quant

import "github.com/microscale-go/microscale/format"

// randomLines hands out the random words of one line after the other, those that
// Stream.At gives its elements. Four elements whose indices follow each other come
// from one call of the generator: of a rowwise tensor four of a line, of a
// columnwise one the same position of four lines, which are drawn together.
type randomLines struct {
	run   *run
	first int // of the lines drawn, -1 before any
	words [4][]uint32
}

// newRandomLines returns nil where r rounds without random bits.
func (r *run) newRandomLines() *randomLines {
	if r.q.Rounding != format.Stochastic {
		return nil
	}
	return &randomLines{run: r, first: -1}
}

// line returns the words of line l, which are good until the next call.
func (n *randomLines) line(l int) []uint32 {
	r := n.run
	switch {
	case r.t.Direction == Rowwise:
		words := n.room(0)
		r.with.Random.fill(words, r.element(l, 0))
		return words
	case r.cols%len(n.words) != 0:
		words := n.room(0)
		for p := range words {
			words[p] = r.with.Random.At(r.element(l, p))
		}
		return words
	}
	if first := l - l%len(n.words); first != n.first {
		n.first = first
		w0, w1, w2, w3 := n.room(0), n.room(1), n.room(2), n.room(3)
		for p := range w0 {
			four := r.with.Random.block(r.element(first, p) / 4)
			w0[p], w1[p], w2[p], w3[p] = four[0], four[1], four[2], four[3]
		}
	}
	return n.words[l-n.first]
}

// room returns space for the words of a line.
func (n *randomLines) room(i int) []uint32 {
	if n.words[i] == nil {
		n.words[i] = make([]uint32, n.run.x.cols())
	}
	return n.words[i]
}

// fill sets words to those of the elements from the given index on.
func (s *Stream) fill(words []uint32, from uint64) {
	for len(words) > 0 {
		four := s.block(from / 4)
		n := copy(words, four[from%4:])
		words, from = words[n:], from+uint64(n)
	}
}
