package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// bufferCodes is the number of 16-bit codes that a call converts at a time.
const bufferCodes = 1024

// FromUint16 sets dst to the values of the codes src in the format f: BF16 or FP16. The conversion is
// exact. FromUint16 returns an error for another format, or if the lengths differ.
func FromUint16(dst []float32, src []uint16, f *format.Scalar) error {
	if err := check16(len(dst), len(src), f); err != nil {
		return err
	}
	var buffer [2 * bufferCodes]byte
	for len(src) > 0 {
		n := min(len(src), bufferCodes)
		for i, code := range src[:n] {
			binary.LittleEndian.PutUint16(buffer[2*i:], code)
		}
		if err := FromBytes(dst[:n], buffer[:2*n], f); err != nil {
			return err
		}
		dst, src = dst[n:], src[n:]
	}
	return nil
}

// ToUint16 sets dst to the codes of src in the format f: BF16 or FP16. It rounds to nearest even, with
// overflow to infinity. ToUint16 returns an error for another format, or if the lengths differ.
func ToUint16(dst []uint16, src []float32, f *format.Scalar) error {
	if err := check16(len(src), len(dst), f); err != nil {
		return err
	}
	var buffer [2 * bufferCodes]byte
	for len(src) > 0 {
		n := min(len(src), bufferCodes)
		if err := ToBytes(buffer[:2*n], src[:n], f); err != nil {
			return err
		}
		for i := range n {
			dst[i] = binary.LittleEndian.Uint16(buffer[2*i:])
		}
		dst, src = dst[n:], src[n:]
	}
	return nil
}

// check16 returns an error unless f has 16 bits and the lengths match.
func check16(values, codes int, f *format.Scalar) error {
	switch f {
	case nil:
		return errors.New("element format: got nil, want bf16 or fp16")
	case format.BF16, format.FP16:
	default:
		return fmt.Errorf("element format: got %s, want bf16 or fp16", f)
	}
	if values != codes {
		return fmt.Errorf("got %d codes of %s for %d values, want the same number", codes, f, values)
	}
	return nil
}
