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
	move := pair
	if s.CodeBits == 8 {
		move = copyCodes
	}
	for len(dst) > 0 {
		dst = dst[copy(dst, scales[:n]):]
		scales = scales[n:]
		for range s.Blocks {
			move(dst[:size], codes[:size])
			dst, codes = dst[size:], codes[size:]
		}
	}
}

// Deinterleave splits the structs of src into codes and scales. It is the inverse of
// Interleave.
func (s Struct) Deinterleave(codes, scales, src []byte) {
	s.check(src, codes, scales)
	size, n := s.CodeBytes(), s.Blocks*s.ScaleBytes
	move := unpair
	if s.CodeBits == 8 {
		move = copyCodes
	}
	for len(src) > 0 {
		src = src[copy(scales, src[:n]):]
		scales = scales[n:]
		for range s.Blocks {
			move(codes[:size], src[:size])
			codes, src = codes[size:], src[size:]
		}
	}
}

func (s Struct) check(structs, codes, scales []byte) {
	n := len(structs) / s.Bytes()
	if len(structs) != n*s.Bytes() || len(codes) != n*s.Blocks*s.CodeBytes() || len(scales) != n*s.Blocks*s.ScaleBytes {
		panic(fmt.Sprintf("ggml: %s: got %d bytes of structs, %d of codes and %d of scales, want those of equally many whole structs", s, len(structs), len(codes), len(scales)))
	}
}

func copyCodes(dst, src []byte) { copy(dst, src) }

// lowNibbles are the low nibbles of the bytes of a word.
const lowNibbles = 0x0f0f0f0f0f0f0f0f

// pair sets dst to codes, the 4-bit codes of a block of 16 or 32 elements, in ggml's order.
func pair(dst, codes []byte) {
	var first, second uint64 // halves of the block
	wide := len(codes) == 16
	if wide {
		first, second = binary.LittleEndian.Uint64(codes), binary.LittleEndian.Uint64(codes[8:])
	} else {
		first, second = uint64(binary.LittleEndian.Uint32(codes)), uint64(binary.LittleEndian.Uint32(codes[4:]))
	}
	even := first&lowNibbles | second&lowNibbles<<4
	odd := first>>4&lowNibbles | second&^lowNibbles
	binary.LittleEndian.PutUint64(dst, spread(uint32(even))|spread(uint32(odd))<<8)
	if wide {
		binary.LittleEndian.PutUint64(dst[8:], spread(uint32(even>>32))|spread(uint32(odd>>32))<<8)
	}
}

// unpair is the inverse of pair.
func unpair(codes, src []byte) {
	x := binary.LittleEndian.Uint64(src)
	even, odd := gather(x), gather(x>>8)
	wide := len(src) == 16
	if wide {
		x = binary.LittleEndian.Uint64(src[8:])
		even, odd = even|gather(x)<<32, odd|gather(x>>8)<<32
	}
	first := even&lowNibbles | odd&lowNibbles<<4
	second := even>>4&lowNibbles | odd&^lowNibbles
	if wide {
		binary.LittleEndian.PutUint64(codes, first)
		binary.LittleEndian.PutUint64(codes[8:], second)
		return
	}
	binary.LittleEndian.PutUint32(codes, uint32(first))
	binary.LittleEndian.PutUint32(codes[4:], uint32(second))
}

// spread returns the four bytes of x as the even bytes of eight.
func spread(x uint32) uint64 {
	y := uint64(x)
	y = (y | y<<16) & 0x0000ffff0000ffff
	return (y | y<<8) & 0x00ff00ff00ff00ff
}

// gather returns the four even bytes of y: the inverse of spread.
func gather(y uint64) uint64 {
	y &= 0x00ff00ff00ff00ff
	y = (y | y>>8) & 0x0000ffff0000ffff
	return (y | y>>16) & 0x00000000ffffffff
}
