package tensor_test

import (
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// BenchmarkBytes measures both directions. The rate counts the float32 side.
func BenchmarkBytes(b *testing.B) {
	x := make([]float32, 4096)
	for i := range x {
		x[i] = float32(i%61-30) * 0.037
	}
	for _, f := range []*format.Scalar{format.BF16, format.FP16, format.F32} {
		raw := make([]byte, len(x)*f.Bits()/8)
		b.Run("op=to/format="+f.Name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				if err := tensor.ToBytes(raw, x, f); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("op=from/format="+f.Name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			y := make([]float32, len(x))
			for b.Loop() {
				if err := tensor.FromBytes(y, raw, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
