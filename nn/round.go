package nn

import "math"

// roundBF16 sets dst[i] to src[i] rounded to BF16, to nearest even with overflow
// to infinity, as a cast does. NaN stays NaN.
func roundBF16(dst, src []float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		b := math.Float32bits(v)
		if v != v {
			dst[i] = math.Float32frombits(b&0xffff0000 | 1<<22)
			continue
		}
		dst[i] = math.Float32frombits((b + 0x7fff + b>>16&1) & 0xffff0000)
	}
}
