package safetensors

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"

	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/tensor"
)

// Floats reads a tensor of the file as float32 values, in row-major order. Every dtype with
// floating-point values but C64 is supported:
//
//   - F32 is copied bit by bit. F64 is rounded to nearest even, beyond float32's range to ±Inf.
//   - BF16, F16 and formats of 4 to 8 bits are exact. In F4, F6_E2M3 and F6_E3M2, the first
//     element is in the lowest bits.
//
// Scales are not applied: for a quantized weight, use package quant. Floats returns an error for
// other dtypes, and one that wraps [fs.ErrNotExist] if the file has no tensor of that name. To
// convert a large tensor part by part, see [File.ReadTensorAt] and tensor.FromBytes.
func (f *File) Floats(name string) ([]float32, error) {
	info, ok := f.Lookup(name)
	if !ok {
		return nil, &ContainerError{Path: f.name, Tensor: name, Offset: -1, Problem: "the file has no such tensor", Err: fs.ErrNotExist}
	}
	decode, err := info.Dtype.decoder()
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", f.name, limits.Quote(name), err)
	}
	values := make([]float32, info.Elements())
	const bufferElements = 1 << 18 // whole bytes of every dtype
	elementBits := info.Dtype.Bits()
	buffer := make([]byte, min(bufferElements*int64(elementBits)/8, info.Bytes()))
	for off, rest := int64(0), values; len(rest) > 0; {
		n := min(bufferElements, len(rest))
		raw := buffer[:n*elementBits/8]
		if err := f.ReadTensorAt(raw, info, off); err != nil {
			return nil, err
		}
		if err := decode(rest[:n], raw); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", f.name, limits.Quote(name), err)
		}
		off, rest = off+int64(len(raw)), rest[n:]
	}
	return values, nil
}

// decoder returns the function that converts stored elements, which fill whole bytes, to float32.
func (d Dtype) decoder() (func(dst []float32, src []byte) error, error) {
	f := dtypes[d].scalar
	switch {
	case d == F64:
		return decodeF64, nil
	case f == nil:
		return nil, fmt.Errorf("got dtype %s, want a floating-point dtype: read its bytes instead", d)
	case f.Bits() > 8:
		return func(dst []float32, src []byte) error { return tensor.FromBytes(dst, src, f) }, nil
	}
	return func(dst []float32, src []byte) error {
		codes := make([]byte, len(dst))
		f.Split(codes, src)
		f.DecodeSlice(dst, codes)
		return nil
	}, nil
}

func decodeF64(dst []float32, src []byte) error {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
	return nil
}
