package comm

import "math/bits"

// Sum sets dst to the sum of parts, which are as long as dst, in float32. The order of the
// additions is a binary tree over the index of the part: the parts before the largest power of
// two below their number, plus the parts from there on, each summed in the same way. So ranks
// with 2^k parts each may add their own parts first, and the sum of their sums has the same bits.
// dst may be one of the parts. There is at least one part.
func Sum(dst []float32, parts ...[]float32) {
	var scratch [maxDepth][sumTile]float32 // by depth of the tree
	for from := 0; from < len(dst); from += sumTile {
		n := min(sumTile, len(dst)-from)
		copy(dst[from:from+n], sumTree(&scratch, 0, parts, from, n))
	}
}

// sumTile is the number of elements that Sum adds at a time.
const sumTile = 256

// maxDepth is the depth of the tree of more parts than there can be.
const maxDepth = 24

// sumTree returns the sum of elements [from, from+n) of parts: memory of a part, or of scratch
// from a depth on.
func sumTree(scratch *[maxDepth][sumTile]float32, depth int, parts [][]float32, from, n int) []float32 {
	if len(parts) == 1 {
		return parts[0][from : from+n]
	}
	left := 1 << (bits.Len(uint(len(parts)-1)) - 1)
	sum := scratch[depth][:n]
	a := sumTree(scratch, depth, parts[:left], from, n)
	if left > 1 { // a lies in sum already
		b := sumTree(scratch, depth+1, parts[left:], from, n)
		for i := range sum {
			sum[i] += b[i]
		}
		return sum
	}
	b := parts[1][from : from+n]
	for i := range sum {
		sum[i] = a[i] + b[i]
	}
	return sum
}
