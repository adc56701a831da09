package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
)

// FromBytes sets dst to the little-endian values of src in the format f, which
// is BF16, FP16 or F32. It fails where src does not hold exactly len(dst) values.
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

// ToBytes sets dst to the little-endian values of src in the format f, which is
// BF16, FP16 or F32, rounded to nearest even with overflow to infinity, as a
// cast does. It fails where dst does not hold exactly len(src) values.
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
	case format.F32: // every bit kept, a NaN's payload too
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	}
	return nil
}

// cast is the conversion that ToBytes does.
var cast = format.Conversion{Overflow: format.NonSaturating, NaN: format.KeepSign}

// widenPlain is FromBytes of BF16, the upper half of a float32.
func widenPlain(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// narrowPlain is ToBytes of BF16.
func narrowPlain(dst []byte, src []float32) { format.BF16.EncodeSlice16(dst, src, cast) }

func checkFormat(f *format.Scalar) error {
	switch f {
	case format.BF16, format.FP16, format.F32:
		return nil
	case nil:
		return errors.New("a dense tensor is bf16, fp16 or f32, not of no format")
	}
	return fmt.Errorf("a dense tensor is bf16, fp16 or f32, not %s", f)
}

func checkBytes(values, bytes int, f *format.Scalar) error {
	if err := checkFormat(f); err != nil {
		return err
	}
	if size := f.Bits() / 8; bytes != values*size {
		return fmt.Errorf("%d bytes do not hold %d values of %s", bytes, values, f)
	}
	return nil
}
