package nn

import (
	"math"
	"sync/atomic"
)

// RotaryConfig describes a rotary position embedding.
type RotaryConfig struct {
	HeadDim   int // elements of a head
	Rotated   int // the first elements of a head that are rotated, an even number; 0: all
	Positions int // maximum number of positions
	Base      float64

	// Interleaved pairs neighboring elements of a head, 2i and 2i+1, as the first implementation
	// did. Otherwise a pair consists of corresponding elements of the two halves of the rotated
	// elements, as in Hugging Face's Llama (rotate_half).
	Interleaved bool

	// Divisors of the frequencies, one for each pair; nil divides by nothing. Sequences of more
	// than Short positions use LongDivisors if there are any.
	Divisors, LongDivisors []float64
	Short                  int

	Magnitude float64 // factor of cosines and sines; 0: 1
}

// Rotary is rotary position embedding (Su et al., "RoFormer", 2021):
//
//	[a b] → [a·cos − b·sin   b·cos + a·sin]      angle i = position · base^(−2i/d)/divisor i, 0 ≤ i < d/2
//
// Angles are float32 products, as in Hugging Face's implementation.
type Rotary struct {
	config      RotaryConfig
	short, long []float32 // frequencies

	tables [2]atomic.Pointer[rotation] // of short and of long sequences, from position 0 on
}

// NewRotary returns the embedding that c describes.
func NewRotary(c RotaryConfig) *Rotary {
	if c.Rotated == 0 {
		c.Rotated = c.HeadDim
	}
	if c.Magnitude == 0 {
		c.Magnitude = 1
	}
	r := &Rotary{config: c, short: c.frequencies(c.Divisors)}
	r.long = r.short
	if c.LongDivisors != nil {
		r.long = c.frequencies(c.LongDivisors)
	}
	return r
}

func (c *RotaryConfig) frequencies(divisors []float64) []float32 {
	f := make([]float32, c.Rotated/2)
	for i := range f {
		divisor := math.Pow(c.Base, float64(2*i)/float64(c.Rotated))
		if divisors != nil {
			divisor *= divisors[i]
		}
		f[i] = float32(1 / divisor)
	}
	return f
}

// Positions returns the number of positions.
func (r *Rotary) Positions() int { return r.config.Positions }

// A rotation holds the cosines and sines of consecutive positions.
type rotation struct {
	pairs       int // of a head
	dim         int // elements of a head
	interleaved bool
	cos, sin    []float32
}

// rotation returns the rotation of n positions starting at first, of a sequence that may grow to
// the given length.
func (r *Rotary) rotation(first, n, length int) rotation {
	frequency, table := r.short, &r.tables[0]
	if length > r.config.Short {
		frequency, table = r.long, &r.tables[1]
	}
	from, to := first*len(frequency), (first+n)*len(frequency)
	t := table.Load()
	if t == nil || len(t.cos) < to {
		t = r.extend(t, frequency, first+n)
		table.Store(t)
	}
	part := *t
	part.cos, part.sin = t.cos[from:to], t.sin[from:to]
	return part
}

// extend returns a table of at least n positions with the contents of old, which may be nil.
// The table at least doubles, so that a growing sequence seldom needs another one.
func (r *Rotary) extend(old *rotation, frequency []float32, n int) *rotation {
	pairs, have := len(frequency), 0
	if old != nil {
		have = len(old.cos) / pairs
	}
	n = max(n, min(2*have, r.config.Positions))
	t := &rotation{pairs, r.config.HeadDim, r.config.Interleaved, make([]float32, n*pairs), make([]float32, n*pairs)}
	if old != nil {
		copy(t.cos, old.cos)
		copy(t.sin, old.sin)
	}
	magnitude := float32(r.config.Magnitude)
	for p := have; p < n; p++ {
		for i, f := range frequency {
			sin, cos := math.Sincos(float64(float32(p) * f))
			t.cos[p*pairs+i], t.sin[p*pairs+i] = float32(cos)*magnitude, float32(sin)*magnitude
		}
	}
	return t
}

// apply rotates the heads of a row at the given index of the positions.
func (t *rotation) apply(row []float32, index int) {
	cos, sin := t.at(index)
	if t.interleaved {
		t.neighbors(row, cos, sin, 1)
		return
	}
	for ; len(row) > 0; row = row[t.dim:] {
		a, b := row[:t.pairs], row[t.pairs:2*t.pairs]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)-float32(y*sin[i]), float32(y*c)+float32(x*sin[i])
		}
	}
}

// invert applies the transpose of apply, for the backward pass.
func (t *rotation) invert(row []float32, index int) {
	cos, sin := t.at(index)
	if t.interleaved {
		t.neighbors(row, cos, sin, -1)
		return
	}
	for ; len(row) > 0; row = row[t.dim:] {
		a, b := row[:t.pairs], row[t.pairs:2*t.pairs]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)+float32(y*sin[i]), float32(y*c)-float32(x*sin[i])
		}
	}
}

// neighbors rotates interleaved pairs, by the negative angles if sign is −1.
func (t *rotation) neighbors(row, cos, sin []float32, sign float32) {
	for ; len(row) > 0; row = row[t.dim:] {
		for i, c := range cos {
			x, y, s := row[2*i], row[2*i+1], sign*sin[i]
			row[2*i], row[2*i+1] = float32(x*c)-float32(y*s), float32(y*c)+float32(x*s)
		}
	}
}

func (t *rotation) at(index int) (cos, sin []float32) {
	from, to := index*t.pairs, (index+1)*t.pairs
	return t.cos[from:to], t.sin[from:to]
}
