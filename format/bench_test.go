package format

import "testing"

// BenchmarkEncode measures the codec on normal values of random sign and size.
func BenchmarkEncode(b *testing.B) {
	src := make([]float32, 4096)
	for i := range src {
		src[i] = float32(i%61-30) * 0.37
	}
	dst := make([]byte, len(src))
	for _, s := range []*Scalar{E4M3, E2M1} {
		b.Run("format="+s.Name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(src)))
			for b.Loop() {
				s.EncodeSlice(dst, src)
			}
		})
	}
}
