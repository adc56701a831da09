//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// bytesF32 is the codeDecoder of AVX2: by way of float16, or with gathers.
func bytesF32(e *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	if c := floatCodesOf[e]; c == nil || packFloatsF32(dst, src, stride, scales, step, n, c) != 0 {
		packBytesF32(dst, src, stride, scales, step, n, unsafe.Pointer(f32Tables[e]))
	}
	return true
}

// f32Tables holds the values of all codes of each element format.
var f32Tables = func() map[*format.Scalar]*[256]float32 {
	tables := map[*format.Scalar]*[256]float32{}
	for _, e := range format.All() {
		if e.Bits() <= 8 {
			t := new([256]float32)
			for code := range t {
				t[code] = e.Decode(uint32(code))
			}
			tables[e] = t
		}
	}
	return tables
}()
