package layouts

import (
	"bytes"
	"math"
	"slices"
)

// A Candidate is a layout that a buffer may be in.
type Candidate struct {
	Layout Layout
	Err    error // why the buffer is not in this layout; nil if it may be

	// Structure is the share of the variance of log2 of the scales that rows and columns
	// explain, from 0 to 1. Scales of weights and activations vary by row and by channel,
	// and a wrong layout mixes rows. NaN for layouts with codes.
	Structure float64
}

// Find returns every layout with b's scales or codes, the likeliest first. certain reports
// whether the first is the only possible one, gives the same bytes as the others, or explains
// more of the variance than the next that differs, by five standard deviations of what chance
// explains.
func (b Buffer) Find(src []byte) (candidates []Candidate, certain bool) {
	var plain [][]byte // the scales of each possible candidate in row-major order
	var structures []float64
	for _, l := range Layouts() {
		c := Candidate{Layout: l, Err: b.arranged(src, l), Structure: math.NaN()}
		if c.Err == nil && l.Scales() {
			rows, blocks := b.scaleShape()
			scales := b.scales(src, l)
			c.Structure = explained(b.logs(b.decoded(scales, l)), rows, blocks)
			plain, structures = append(plain, scales), append(structures, c.Structure)
		}
		candidates = append(candidates, c)
	}
	slices.SortStableFunc(candidates, func(x, y Candidate) int {
		switch {
		case (x.Err == nil) != (y.Err == nil):
			if x.Err == nil {
				return -1
			}
			return 1
		case x.Structure > y.Structure:
			return -1
		case x.Structure < y.Structure:
			return 1
		}
		return 0
	})
	if candidates[0].Err != nil {
		return candidates, false
	}
	return candidates, len(plain) == 0 || b.clear(plain, structures)
}

// clear reports whether the largest structure stands out among candidates with other scales.
func (b Buffer) clear(plain [][]byte, structures []float64) bool {
	best := 0
	for i, s := range structures {
		if s > structures[best] {
			best = i
		}
	}
	rows, blocks := b.scaleShape()
	// The share that rows+blocks-2 degrees of freedom explain of noise varies by this much.
	deviation := math.Sqrt(2*float64(max(rows+blocks-2, 1))) / float64(rows*blocks)
	for i, s := range structures {
		if !bytes.Equal(plain[i], plain[best]) && structures[best]-s < 5*deviation {
			return false
		}
	}
	return true
}

// logs returns log2 of the magnitudes of scales, of the smallest normal if they are zero or not finite.
// Hardware ignores the sign of UE4M3.
func (b Buffer) logs(scales []float32) []float64 {
	logs := make([]float64, len(scales))
	for i, s := range scales {
		v := math.Abs(float64(s))
		if smallest := float64(b.Format.Scale.SmallestNormal()); !(v >= smallest) || math.IsInf(v, 0) {
			v = smallest
		}
		logs[i] = math.Log2(v)
	}
	return logs
}

// explained returns the share of the variance of x, rows × cols, that the means of its rows and
// of its columns explain: 0 if all values are equal. It modifies x.
func explained(x []float64, rows, cols int) float64 {
	for i, first := 0, x[0]; i < len(x); i++ {
		x[i] -= first // equal values have means of exactly zero
	}
	mean := 0.0
	byRow, byCol := make([]float64, rows), make([]float64, cols)
	for i := range rows {
		for j := range cols {
			v := x[i*cols+j]
			mean += v / float64(rows*cols)
			byRow[i] += v / float64(cols)
			byCol[j] += v / float64(rows)
		}
	}
	all, rest := 0.0, 0.0
	for i := range rows {
		for j := range cols {
			v := x[i*cols+j] - mean
			all += v * v
			r := x[i*cols+j] - byRow[i] - byCol[j] + mean
			rest += r * r
		}
	}
	if all == 0 {
		return 0
	}
	return 1 - rest/all
}
