// Package ggml converts between the codes and scales of quantized tensors and the structs in which
// ggml stores both, in GGUF files.
package ggml

import (
	"encoding/binary"
	"fmt"
)

// A Struct is a ggml struct that interleaves blocks of codes with their scales
// (ggml-common.h): a few scales, then the codes of each block.
//
//	block_mxfp4   e8m0 e        nibbles qs[16]               32 elements, 17 bytes
//	block_nvfp4   ue4m3 d[4]    nibbles qs[4][8]    4 blocks of 16 elements, 36 bytes
//	block_q8_0    fp16 d        int8 qs[32]                  32 elements, 34 bytes
//
// 4-bit codes are paired across a block: byte j of a block of n elements holds element j in
// its low nibble and element j+n/2 in its high one. quant.Tensor and most checkpoints pair
// elements 2j and 2j+1. The values below are the only ones.
type Struct struct {
	Name       string
	Blocks     int // blocks per struct
	Elements   int // elements per block
	ScaleBytes int // bytes of the scale of a block
	CodeBits   int // 4 or 8
}

// The table of structs.
var (
	BlockMXFP4 = Struct{"block_mxfp4", 1, 32, 1, 4}
	BlockNVFP4 = Struct{"block_nvfp4", 4, 16, 1, 4}
	BlockQ80   = Struct{"block_q8_0", 1, 32, 2, 8}
)

// Structs returns all structs.
func Structs() []Struct { return []Struct{BlockMXFP4, BlockNVFP4, BlockQ80} }

// Bytes returns the bytes of one struct.
func (s Struct) Bytes() int { return s.Blocks * (s.ScaleBytes + s.CodeBytes()) }

// Width returns the elements of one struct. The columns of a tensor must be a multiple of it.
func (s Struct) Width() int { return s.Blocks * s.Elements }

// String returns ggml's name of the struct.
func (s Struct) String() string { return s.Name }

// CodeBytes returns the bytes of a block's codes.
func (s Struct) CodeBytes() int { return s.Elements * s.CodeBits / 8 }

// Interleave sets dst to structs with the given codes, joined as in quant.Tensor, and scales.
// It panics if the lengths are not those of the same number of whole structs. dst must not
// overlap codes or scales.
func (s Struct) Interleave(dst, codes, scales []byte) {
	s.check(dst, codes, scales)
	size, n := s.CodeBytes(), s.Blocks*s.ScaleBytes
	for len(dst) > 0 {
		copy(dst[:n], scales)
		for b := range s.Blocks {
			s.pair(dst[n+b*size:][:size], codes[b*size:][:size])
		}
		dst, codes, scales = dst[s.Bytes():], codes[s.Blocks*size:], scales[n:]
	}
}

// Deinterleave splits the structs of src into codes and scales. It is the inverse of
// Interleave.
func (s Struct) Deinterleave(codes, scales, src []byte) {
	s.check(src, codes, scales)
	size, n := s.CodeBytes(), s.Blocks*s.ScaleBytes
	for len(src) > 0 {
		copy(scales, src[:n])
		for b := range s.Blocks {
			s.unpair(codes[b*size:][:size], src[n+b*size:][:size])
		}
		src, codes, scales = src[s.Bytes():], codes[s.Blocks*size:], scales[n:]
	}
}

func (s Struct) check(structs, codes, scales []byte) {
	n := len(structs) / s.Bytes()
	if len(structs) != n*s.Bytes() || len(codes) != n*s.Blocks*s.CodeBytes() || len(scales) != n*s.Blocks*s.ScaleBytes {
		panic(fmt.Sprintf("ggml: %s: got %d bytes of structs, %d of codes and %d of scales, want those of equally many whole structs", s, len(structs), len(codes), len(scales)))
	}
}

// pair sets dst to codes, the codes of a block, in ggml's order.
func (s Struct) pair(dst, codes []byte) {
	if s.CodeBits == 8 {
		copy(dst, codes)
		return
	}
	half := len(codes) / 2 // bytes whose elements go to low nibbles
	for i := 0; i < half; i += 4 {
		low, high := spread(binary.LittleEndian.Uint32(codes[i:])), spread(binary.LittleEndian.Uint32(codes[half+i:]))
		binary.LittleEndian.PutUint64(dst[2*i:], low|high<<4)
	}
}

// unpair is the inverse of pair.
func (s Struct) unpair(codes, src []byte) {
	if s.CodeBits == 8 {
		copy(codes, src)
		return
	}
	half := len(codes) / 2
	for i := 0; i < half; i += 4 {
		both := binary.LittleEndian.Uint64(src[2*i:])
		binary.LittleEndian.PutUint32(codes[i:], gather(both))
		binary.LittleEndian.PutUint32(codes[half+i:], gather(both>>4))
	}
}

// spread returns the eight nibbles of x, lowest first, as eight bytes.
func spread(x uint32) uint64 {
	y := uint64(x)
	y = (y | y<<16) & 0x0000ffff0000ffff
	y = (y | y<<8) & 0x00ff00ff00ff00ff
	return (y | y<<4) & 0x0f0f0f0f0f0f0f0f
}

// gather returns the low nibbles of eight bytes: the inverse of spread.
func gather(y uint64) uint32 {
	y &= 0x0f0f0f0f0f0f0f0f
	y = (y | y>>4) & 0x00ff00ff00ff00ff
	y = (y | y>>8) & 0x0000ffff0000ffff
	return uint32(y | y>>16)
}
