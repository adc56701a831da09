package nn

import "math"

// roundBF16 rounds each element to BF16: to nearest even, with overflow to infinity. NaN stays NaN.
func roundBF16(x []float32) {
	if k := rowKernelFor(x); k != nil {
		n := len(x) / k.unit
		k.round(&x[0], n)
		x = x[n*k.unit:]
	}
	for i, v := range x {
		b := math.Float32bits(v)
		if v != v {
			x[i] = math.Float32frombits(b&0xffff0000 | 1<<22)
			continue
		}
		x[i] = math.Float32frombits((b + 0x7fff + b>>16&1) & 0xffff0000)
	}
}
