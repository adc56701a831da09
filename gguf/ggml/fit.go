package ggml

import "math"

// The searches below choose integers and scales that lower a weighted squared error, in the order of float32 operations of
// ggml-quants.c, so that blocks have its bits. Each product rounds to float32: no sum is fused with one.

// leastAmax is the largest magnitude below which values count as zeros.
const leastAmax = 1e-15

// nearest rounds to the nearest integer, ties to even, by adding 1.5·2²³. Out of ±2²² the result has the low bits of that sum.
func nearest(v float32) int {
	return int(math.Float32bits(v+12582912)&0x007fffff) - 0x00400000
}

func sqrt(v float32) float32 { return float32(math.Sqrt(float64(v))) }

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// extreme returns the value of the largest magnitude, and that magnitude.
func extreme(x []float32) (value, magnitude float32) {
	for _, v := range x {
		if a := abs(v); a > magnitude {
			value, magnitude = v, a
		}
	}
	return value, magnitude
}

// bounds returns the least and the greatest value, the first of equal zeros.
func bounds(x []float32) (low, high float32) {
	low, high = x[0], x[0]
	for _, v := range x[1:] {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high
}

// sums accumulates Σ w·x·q and Σ w·q².
type sums struct{ xq, qq float32 }

func (s *sums) add(w, x float32, q int) {
	s.xq += float32(float32(w*x) * float32(q))
	s.qq += float32(float32(w*float32(q)) * float32(q))
}

// without returns the sums without an element.
func (s sums) without(w, x float32, q int) sums {
	return sums{s.xq - float32(float32(w*x)*float32(q)), s.qq - float32(float32(w*float32(q))*float32(q))}
}

// better reports whether the integers of s have a lower error than those of t, each with its best scale.
func (s sums) better(t sums) bool {
	return float32(float32(s.xq*s.xq)*t.qq) > float32(float32(t.xq*t.xq)*s.qq)
}

// scale returns the scale of the least error, 0 without integers.
func (s sums) scale() float32 {
	if s.qq > 0 {
		return s.xq / s.qq
	}
	return 0
}

// fitSigned sets codes to integers of −limit … limit−1, plus limit, of values x with weights w (nil: their squares), and returns the
// scale: the best of 19 grids near the one whose edge is the extreme value.
func fitSigned(codes []uint8, x, w []float32, limit int) float32 {
	edge, amax := extreme(x)
	if amax < leastAmax {
		clear(codes)
		return 0
	}
	weight := func(i int) float32 {
		if w != nil {
			return w[i]
		}
		return float32(x[i] * x[i])
	}
	code := func(inverse, v float32) int { return max(-limit, min(limit-1, nearest(float32(inverse*v)))) }
	var s sums
	inverse := float32(-limit) / edge
	for i, v := range x {
		q := code(inverse, v)
		codes[i] = uint8(q + limit)
		s.add(weight(i), v, q)
	}
	scale := float32(0)
	if s.qq != 0 {
		scale = s.xq / s.qq
	}
	best := float32(scale * s.xq)
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		inverse = -(float32(limit) + float32(float32(0.1)*float32(step))) / edge
		s = sums{}
		for i, v := range x {
			s.add(weight(i), v, code(inverse, v))
		}
		if s.qq > 0 && float32(s.xq*s.xq) > float32(best*s.qq) {
			for i, v := range x {
				codes[i] = uint8(code(inverse, v) + limit)
			}
			scale = s.xq / s.qq
			best = float32(scale * s.xq)
		}
	}
	return scale
}

// fitPasses is the number of passes over all elements that change one at a time.
const fitPasses = 5

// fitDescending is fitSigned with weights x², one grid, and passes that change one integer at a time.
func fitDescending(codes []uint8, x []float32, limit int) float32 {
	edge, amax := extreme(x)
	if amax < leastAmax {
		clear(codes)
		return 0
	}
	var s sums
	inverse := float32(-limit) / edge
	q := make([]int, len(x))
	for i, v := range x {
		q[i] = max(-limit, min(limit-1, nearest(float32(inverse*v))))
		s.add(float32(v*v), v, q[i])
	}
	for range fitPasses {
		changed := false
		for i, v := range x {
			w := float32(v * v)
			other := s.without(w, v, q[i])
			if other.xq <= 0 {
				continue
			}
			next := max(-limit, min(limit-1, nearest(float32(v*other.qq)/other.xq)))
			if next == q[i] {
				continue
			}
			if other.add(w, v, next); other.qq > 0 && other.better(s) {
				q[i], s, changed = next, other, true
			}
		}
		if !changed {
			break
		}
	}
	for i := range q {
		codes[i] = uint8(q[i] + limit)
	}
	return s.scale()
}

// fitPositive sets codes to integers up to limit of values x that are not negative, with weights w, and returns the scale: a grid near
// the one whose edge is the maximum, then passes that change one integer at a time.
func fitPositive(codes []uint8, x, w []float32, limit int) float32 {
	top := float32(0)
	for _, v := range x {
		if !(top > v) { // a NaN counts unless it is followed by a number
			top = v
		}
	}
	if top < leastAmax {
		clear(codes)
		return 0
	}
	loss := func(inverse float32, code func(v float32) int) (sum float32) {
		scale := 1 / inverse
		for i, v := range x {
			d := v - float32(scale*float32(code(v)))
			sum += float32(float32(w[i]*d) * d)
		}
		return sum
	}
	inverse := float32(limit) / top
	least := loss(inverse, func(v float32) int { return int(uint8(nearest(float32(inverse * v)))) })
	for step := -4; step <= 4; step++ {
		if step == 0 {
			continue
		}
		other := (float32(float32(0.1)*float32(step)) + float32(limit)) / top
		if l := loss(other, func(v float32) int { return min(limit, nearest(float32(other*v))) }); l < least {
			least, inverse = l, other
		}
	}
	var s sums
	for i, v := range x {
		q := min(limit, nearest(float32(inverse*v)))
		codes[i] = uint8(q)
		s.add(w[i], v, q)
	}
	for range fitPasses {
		changed := false
		for i, v := range x {
			other := s.without(w[i], v, int(codes[i]))
			if !(other.xq > 0 && other.qq > 0) {
				continue
			}
			next := min(limit, nearest(float32(v*other.qq)/other.xq))
			if next == int(codes[i]) {
				continue
			}
			if other.add(w[i], v, next); other.better(s) {
				codes[i], s, changed = uint8(next), other, true
			}
		}
		if !changed {
			break
		}
	}
	return s.scale()
}

// A rangeSearch says which grids fitRange tries: with the edge limit + first + step·i for i of 0 … steps.
type rangeSearch struct {
	limit       int
	first, step float32
	steps       int
	absolute    bool // the error is the magnitude of differences, not their square
}

// fitRange sets codes to integers 0 … limit of x = scale·q − least, and returns scale and least, which is not negative. w are weights.
func fitRange(codes []uint8, x, w []float32, r rangeSearch) (scale, least float32) {
	bottom, top := bounds(x)
	sumW := w[0]
	sumX := float32(sumW * x[0])
	for i := 1; i < len(x); i++ {
		sumW += w[i]
		sumX += float32(w[i] * x[i])
	}
	if bottom > 0 {
		bottom = 0
	}
	if top <= bottom {
		clear(codes)
		return 0, -bottom
	}
	loss := func(codes []uint8, scale, bottom float32) (sum float32) {
		for i, v := range x {
			d := float32(scale*float32(codes[i])) + bottom - v
			if r.absolute {
				d = abs(d)
			} else {
				d = float32(d * d)
			}
			sum += float32(w[i] * d)
		}
		return sum
	}
	code := func(inverse, v float32) uint8 {
		return uint8(max(0, min(r.limit, nearest(float32(inverse*(v-bottom))))))
	}
	inverse := float32(r.limit) / (top - bottom)
	scale = 1 / inverse
	for i, v := range x {
		codes[i] = code(inverse, v)
	}
	best := loss(codes, scale, bottom)
	var memory [32]uint8
	other := memory[:len(x)]
	for i := range r.steps + 1 {
		inverse = (r.first + float32(r.step*float32(i)) + float32(r.limit)) / (top - bottom) // of the best bottom so far
		var q, qq, xq float32
		for j, v := range x {
			other[j] = code(inverse, v)
			wq := float32(w[j] * float32(other[j]))
			q += wq
			qq += float32(wq * float32(other[j]))
			xq += float32(wq * v)
		}
		d := float32(sumW*qq) - float32(q*q)
		if !(d > 0) {
			continue
		}
		thisScale := (float32(sumW*xq) - float32(sumX*q)) / d
		thisBottom := (float32(qq*sumX) - float32(q*xq)) / d
		if thisBottom > 0 {
			thisBottom, thisScale = 0, xq/qq
		}
		if l := loss(other, thisScale, thisBottom); l < best {
			copy(codes, other)
			best, scale, bottom = l, thisScale, thisBottom
		}
	}
	return scale, -bottom
}
