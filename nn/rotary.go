package nn

import "math"

// Rotary is rotary position embedding (Su et al., "RoFormer", 2021) as in Hugging Face's Llama: a
// pair consists of corresponding elements of the two halves of a head (rotate_half), not of
// neighbors.
//
//	[a b] → [a·cos − b·sin   b·cos + a·sin]      angle i = position · base^(−2i/d), 0 ≤ i < d/2
//
// Angles are float32 products, as in Hugging Face's implementation.
type Rotary struct {
	positions int
	frequency []float32
}

// NewRotary returns the embedding of positions [0, positions) for heads of dim elements. dim is even.
func NewRotary(dim, positions int, base float64) *Rotary {
	r := &Rotary{positions, make([]float32, dim/2)}
	for i := range r.frequency {
		r.frequency[i] = float32(1 / math.Pow(base, float64(2*i)/float64(dim)))
	}
	return r
}

// Positions returns the number of positions.
func (r *Rotary) Positions() int { return r.positions }

// A rotation holds the cosines and sines of consecutive positions.
type rotation struct {
	half     int
	cos, sin []float32
}

// rotation returns the rotation of n positions starting at first.
func (r *Rotary) rotation(first, n int) *rotation {
	half := len(r.frequency)
	t := &rotation{half, make([]float32, n*half), make([]float32, n*half)}
	for p := range n {
		for i, f := range r.frequency {
			sin, cos := math.Sincos(float64(float32(first+p) * f))
			t.cos[p*half+i], t.sin[p*half+i] = float32(cos), float32(sin)
		}
	}
	return t
}

// apply rotates the heads of a row at the given index of the positions.
func (t *rotation) apply(row []float32, index int) {
	cos, sin := t.at(index)
	for ; len(row) > 0; row = row[2*t.half:] {
		a, b := row[:t.half], row[t.half:2*t.half]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)-float32(y*sin[i]), float32(y*c)+float32(x*sin[i])
		}
	}
}

// invert applies the inverse of apply, which is its transpose, for the backward pass.
func (t *rotation) invert(row []float32, index int) {
	cos, sin := t.at(index)
	for ; len(row) > 0; row = row[2*t.half:] {
		a, b := row[:t.half], row[t.half:2*t.half]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)+float32(y*sin[i]), float32(y*c)-float32(x*sin[i])
		}
	}
}

func (t *rotation) at(index int) (cos, sin []float32) {
	from, to := index*t.half, (index+1)*t.half
	return t.cos[from:to], t.sin[from:to]
}
