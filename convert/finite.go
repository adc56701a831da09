package convert

import (
	"encoding/binary"

	"github.com/microscale-go/microscale/format"
)

// countNonFinite returns the number of NaN and Inf values in src, which holds little-endian
// values in the format f: BF16, FP16 or F32.
//
// The exponent of these values is all ones. Only then does adding one to its lowest bit carry
// into the sign bit, so the test handles eight bytes at a time.
func countNonFinite(src []byte, f *format.Scalar) (n int) {
	width := f.Bits()
	exponent := uint64(1)<<(width-1) - uint64(1)<<f.Mantissa
	count := func(word uint64) (n int) {
		for ; word != 0; word >>= width {
			if word&exponent == exponent {
				n++
			}
		}
		return n
	}
	var repeat uint64 // 1 in the lowest bit of each element
	for i := 0; i < 64; i += width {
		repeat |= 1 << i
	}
	exponents, ones, signs := exponent*repeat, repeat<<f.Mantissa, repeat<<(width-1)
	for ; len(src) >= 32; src = src[32:] {
		words := [...]uint64{binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:]), binary.LittleEndian.Uint64(src[16:]),
			binary.LittleEndian.Uint64(src[24:])}
		if ((words[0]&exponents+ones)|(words[1]&exponents+ones)|(words[2]&exponents+ones)|(words[3]&exponents+ones))&signs != 0 {
			for _, word := range words {
				n += count(word)
			}
		}
	}
	for ; len(src) >= 8; src = src[8:] {
		if word := binary.LittleEndian.Uint64(src); (word&exponents+ones)&signs != 0 {
			n += count(word)
		}
	}
	var last [8]byte
	copy(last[:], src)
	return n + count(binary.LittleEndian.Uint64(last[:]))
}
