package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
)

// FromBytes sets dst to the little-endian values of src in the format f: BF16, FP16 or F32. It
// returns an error if src does not hold exactly len(dst) values.
func FromBytes(dst []float32, src []byte, f *format.Scalar) error {
	if err := checkBytes(len(dst), len(src), f); err != nil {
		return err
	}
	switch f {
	case format.BF16:
		if k := bf16KernelOf(len(dst)); k != nil {
			k.widen(dst, src)
		} else {
			widenPlain(dst, src)
		}
	case format.FP16:
		f.DecodeSlice16(dst, src)
	case format.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
	return nil
}

// ToBytes sets dst to the little-endian values of src in the format f: BF16, FP16 or F32. It
// rounds to nearest even, with overflow to infinity. It returns an error if dst does not hold
// exactly len(src) values.
func ToBytes(dst []byte, src []float32, f *format.Scalar) error {
	if err := checkBytes(len(src), len(dst), f); err != nil {
		return err
	}
	switch f {
	case format.BF16:
		if k := bf16KernelOf(len(src)); k != nil {
			k.narrow(dst, src)
		} else {
			narrowPlain(dst, src)
		}
	case format.FP16:
		f.EncodeSlice16(dst, src, cast)
	case format.F32: // copies every bit, including NaN payloads
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	}
	return nil
}

// cast is the conversion of ToBytes.
var cast = format.Conversion{Overflow: format.NonSaturating, NaN: format.KeepSign}

// widenPlain is FromBytes for BF16, which is the upper half of a float32.
func widenPlain(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// narrowPlain is ToBytes for BF16.
func narrowPlain(dst []byte, src []float32) { format.BF16.EncodeSlice16(dst, src, cast) }

func checkFormat(f *format.Scalar) error {
	switch f {
	case format.BF16, format.FP16, format.F32:
		return nil
	case nil:
		return errors.New("element format: got nil, want bf16, fp16 or f32")
	}
	return fmt.Errorf("element format: got %s, want bf16, fp16 or f32", f)
}

func checkBytes(values, bytes int, f *format.Scalar) error {
	if err := checkFormat(f); err != nil {
		return err
	}
	if size := f.Bits() / 8; bytes != values*size {
		return fmt.Errorf("got %d bytes, want those of %d values of %s", bytes, values, f)
	}
	return nil
}
