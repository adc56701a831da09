package quant

import "math"

const hadamardSize = 16

// hadamardSigns is the fixed sign vector of Transformer Engine's random Hadamard
// transform: bit i set where element i is negated.
const hadamardSigns = 0xd7e8

// Hadamard16 replaces v, 16 elements, by v·D·H/4: D the diagonal of Transformer
// Engine's sign vector, H the Sylvester-Hadamard matrix H[i][j] =
// (-1)^popcount(i&j). The result is rounded to BF16, as theirs is. The transform
// is orthogonal: two operands of a product transformed along the dimension that
// it sums over give the same product, and outliers are spread over 16 elements.
func Hadamard16(v []float32) {
	var sum [hadamardSize]float64
	for i := range sum {
		sum[i] = float64(v[i])
		if hadamardSigns>>i&1 == 1 {
			sum[i] = -sum[i]
		}
	}
	butterflies(&sum)
	for i := range sum {
		v[i] = toBF16(float32(sum[i]/4 + 0)) // a product of matrices adds to 0: there is no -0 of zeros
	}
}

// butterflies multiplies v by the Sylvester-Hadamard matrix in float64. This is exact for BF16 inputs
// whose exponents differ by less than about 40.
func butterflies(v *[hadamardSize]float64) {
	const half = hadamardSize / 2
	for i := 0; i < hadamardSize; i += half {
		w := (*[half]float64)(v[i:])
		a0, a1, a2, a3 := w[0]+w[1], w[0]-w[1], w[2]+w[3], w[2]-w[3]
		a4, a5, a6, a7 := w[4]+w[5], w[4]-w[5], w[6]+w[7], w[6]-w[7]
		a0, a1, a2, a3 = a0+a2, a1+a3, a0-a2, a1-a3
		a4, a5, a6, a7 = a4+a6, a5+a7, a4-a6, a5-a7
		w[0], w[1], w[2], w[3] = a0+a4, a1+a5, a2+a6, a3+a7
		w[4], w[5], w[6], w[7] = a0-a4, a1-a5, a2-a6, a3-a7
	}
	for i := range half {
		v[i], v[i+half] = v[i]+v[i+half], v[i]-v[i+half]
	}
}

// hadamardFlips has the float32 sign bits of hadamardSigns, and hadamardNaN is the NaN that the
// transform returns, for kernels.
var (
	hadamardFlips = func() (flips [hadamardSize]uint32) {
		for i := range flips {
			flips[i] = hadamardSigns >> i & 1 << 31
		}
		return flips
	}()
	hadamardNaN = toBF16(float32(math.NaN()))
)
