package nn

import "math"

// Rotary is rotary position embedding (Su et al., "RoFormer", 2021) in the
// arrangement of Hugging Face's Llama, whose pairs are the halves of a head
// (rotate_half) and not neighbors:
//
//	[a b] → [a·cos − b·sin   b·cos + a·sin]      angle i = position · base^(−2i/d), 0 ≤ i < d/2
//
// Angles are products of float32, as theirs are.
type Rotary struct {
	half     int
	cos, sin []float32 // position by position
}

// NewRotary returns the table of positions [0, positions) for heads of dim
// elements, an even number.
func NewRotary(dim, positions int, base float64) *Rotary {
	half := dim / 2
	r := &Rotary{half, make([]float32, positions*half), make([]float32, positions*half)}
	for i := range half {
		frequency := float32(1 / math.Pow(base, float64(2*i)/float64(dim)))
		for p := range positions {
			sin, cos := math.Sincos(float64(float32(p) * frequency))
			r.cos[p*half+i], r.sin[p*half+i] = float32(cos), float32(sin)
		}
	}
	return r
}

// Positions returns how many positions the table has.
func (r *Rotary) Positions() int { return len(r.cos) / max(1, r.half) }

// apply rotates the heads of a row that is at a position.
func (r *Rotary) apply(row []float32, position int) {
	cos, sin := r.at(position)
	for ; len(row) > 0; row = row[2*r.half:] {
		a, b := row[:r.half], row[r.half:2*r.half]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)-float32(y*sin[i]), float32(y*c)+float32(x*sin[i])
		}
	}
}

// invert is the inverse of apply, which is its transpose: what a backward needs.
func (r *Rotary) invert(row []float32, position int) {
	cos, sin := r.at(position)
	for ; len(row) > 0; row = row[2*r.half:] {
		a, b := row[:r.half], row[r.half:2*r.half]
		for i, c := range cos {
			x, y := a[i], b[i]
			a[i], b[i] = float32(x*c)+float32(y*sin[i]), float32(y*c)-float32(x*sin[i])
		}
	}
}

func (r *Rotary) at(position int) (cos, sin []float32) {
	from, to := position*r.half, (position+1)*r.half
	return r.cos[from:to], r.sin[from:to]
}
