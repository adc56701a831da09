package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// search returns the candidate that leaves the smallest error in a block: the
// specification of Search. scale is what the rule or the arithmetic gives.
func (r *reference) search(scale blockScale, amax float32, r0, r1, c0, c1 int) blockScale {
	candidates := r.candidates(scale, amax)
	if r.with.Mean != nil && r.q.Search == LeastSquares {
		return r.searchRow(candidates, r0, c0, c1)
	}
	best, smallest := candidates[0], r.blockError(candidates[0], r0, r1, c0, c1)
	for _, s := range candidates[1:] {
		if e := r.blockError(s, r0, r1, c0, c1); e < smallest {
			best, smallest = s, e
		}
	}
	return best
}

// searchRow is search with With.Mean, of a block of one row. Sums are of float32, in the order of the elements; NaN is above Inf.
func (r *reference) searchRow(candidates []blockScale, row, c0, c1 int) (best blockScale) {
	carried, least := r.carried, uint32(math.MaxUint32)
	for _, s := range candidates {
		var squares, mean float32
		for col := c0; col < c1; col++ {
			e := float32(s.value*r.decode(row, col, s)) - r.rows.At(row, col)
			squares += float32(r.with.variance(col) * float32(e*e))
			mean += float32(r.with.Mean[col] * e)
		}
		to := r.carried + mean
		if all := math.Float32bits(squares + float32(to*to)); all < least {
			best, least, carried = s, all, to
		}
	}
	r.carried = carried
	return best
}

// candidates returns the scales that are tried, the first of which wins a tie.
func (r *reference) candidates(scale blockScale, amax float32) []blockScale {
	list := []blockScale{scale}
	element := r.q.Format.Element
	switch {
	case r.q.Search.fourOverSix():
		wanted := float32(float32(amax/element.Max()) * r.global.encode)
		list = list[:0]
		for _, w := range []float32{wanted, float32(wanted * 1.5)} {
			list = append(list, r.q.byteScale(byte(scaleFormat.Encode(min(w, scaleFormat.Max()))), r.global))
		}
	case r.q.Format.Scale == format.E8M0:
		for _, step := range exponentSteps {
			if code := int(scale.code) + step; 0 <= code && code <= e8m0Max {
				list = append(list, r.q.byteScale(byte(code), r.global))
			}
		}
	case r.q.Format.Scale == format.E4M3:
		for _, step := range codeSteps {
			if code := int(scale.code) + step; 1 <= code && code <= int(scaleFormat.MaxCode()) {
				list = append(list, r.q.byteScale(byte(code), r.global))
			}
		}
	default:
		for _, times := range r.q.amaxFactors() {
			if near := float32(amax * times); isUsable(near) {
				decode, f := r.q.floatScale(near)
				list = append(list, blockScale{value: decode, factor: f})
			}
		}
	}
	return list
}

// blockError returns the error that a scale leaves in a block. Sums of float32
// depend on their order, which is part of the specification.
func (r *reference) blockError(s blockScale, r0, r1, c0, c1 int) (sum float64) {
	if !r.q.Search.fourOverSix() {
		for row := r0; row < r1; row++ {
			var sums [8]float64 // by position
			for col := c0; col < c1; col++ {
				e := float64(float32(s.value*r.decode(row, col, s))) - float64(r.rows.At(row, col))
				sums[(col-c0)%len(sums)] += float64(r.with.importance(col) * float64(e*e))
			}
			sum += ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
		}
		return sum
	}
	var tree [16]float32 // by row
	for row := r0; row < r1; row++ {
		var rowSum float32
		for col := c0; col < c1; col++ {
			rowSum += r.fourOverSixError(row, col, s)
		}
		tree[(row-r0)%len(tree)] += rowSum
	}
	for half := len(tree) / 2; half > 0; half /= 2 {
		for i := range half {
			tree[i] += tree[i+half]
		}
	}
	return float64(tree[0])
}

// fourOverSixError returns the error of one element, in the order of operations
// of Transformer Engine.
func (r *reference) fourOverSixError(row, col int, s blockScale) float32 {
	all := float32(r.q.Format.Element.Max() * r.q.top())
	scale := scaleFormat.Decode(uint32(s.code))
	d := float32(float32(float32(r.decode(row, col, s)*scale)*r.t.Amax)/all) - r.rows.At(row, col)
	if r.q.Search == FourOverSixMSE {
		d = float32(d * d)
	}
	return max(d, -d)
}

// decode returns the value of an element's code under a scale.
func (r *reference) decode(row, col int, s blockScale) float32 {
	return r.q.Format.Element.Decode(uint32(r.encode(row, col, s.factor)))
}
