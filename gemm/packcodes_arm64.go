//go:build !purego

package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// The codeDecoders of NEON. Panels with codes of NaN and Inf are left to packGeneric.

func floatsF32(e *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	return packFloatsF32(dst, src, stride, scales, step, n, floatCodesOf[e]) == 0
}

func floatsBF16(e *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	return packFloatsBF16(dst, src, stride, scales, step, n, floatCodesOf[e]) == 0
}

func integersF32(_ *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	packIntegersF32(dst, src, stride, scales, step, n)
	return true
}

func integersBF16(_ *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	packIntegersBF16(dst, src, stride, scales, step, n)
	return true
}

func nibblesF32(_ *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	packNibblesF32(dst, src, stride, scales, step, n, unsafe.Pointer(&float16Bytes))
	return true
}

func nibblesBF16(_ *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool {
	packNibblesBF16(dst, src, stride, scales, step, n, unsafe.Pointer(&float16Bytes))
	return true
}

// quads8 is dwords8 for wide panels.
func quads8(to, from unsafe.Pointer, row, lanes, dwords int) {
	transposeQuads8(to, from, row, 8*lanes, dwords/4)
}

func wideLanes(s side) bool { return s.kernel.wide }

// tableE2M1 is vectorKernel.tables of kernels with values in float16.
func tableE2M1(e *format.Scalar) unsafe.Pointer {
	if e != format.E2M1 {
		return nil
	}
	return unsafe.Pointer(&float16Bytes)
}

// float16Bytes holds the upper bytes of the E2M1 values as float16; the lower bytes are zero.
var float16Bytes = func() (table [16]byte) {
	const bias = 127 - 15 // of float32's exponents and float16's
	for code := range table {
		bits := math.Float32bits(format.E2M1.Decode(uint32(code)))
		if magnitude := bits &^ (1 << 31); magnitude != 0 {
			table[code] = byte((magnitude - bias<<23) >> (13 + 8))
		}
		table[code] |= byte(bits >> 31 << 7)
	}
	return table
}()

// bytesAsBF16 is bytesAsF32 for BF16 panels.
func bytesAsBF16(s side) bool {
	f := s.t.Format
	return s.form != interleaved && f.Element.Bits() <= 8 && s.kernel.panel == panelBF16 && f.Block.Cols%8 == 0
}

// floats, integers and nibbles report whether the codes are those of a decoder, in blocks of whole groups.

func floats(s side) bool { return floatCodesOf[s.t.Format.Element] != nil }

func integers(s side) bool { return s.t.Format.Element == format.INT8 }

func nibbles(s side) bool { return s.t.Format.Element == format.E2M1 && s.t.Format.Block.Cols%16 == 0 }
