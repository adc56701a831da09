// Package ggml converts between the codes and scales of quantized tensors and the structs in which
// ggml stores both, in GGUF files.
package ggml

import (
	"encoding/binary"
	"fmt"

	"github.com/microscale-go/microscale/internal/cpu"
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

func init() {
	cpu.AddTable("ggml", &kernels, func(k *kernel) (string, cpu.Set) { return k.of.Name, k.needs })
}

// Interleave sets dst to structs with the given codes, joined as in quant.Tensor, and scales.
// It panics if the lengths are not those of the same number of whole structs. dst must not
// overlap codes or scales.
func (s Struct) Interleave(dst, codes, scales []byte) {
	s.check(dst, codes, scales)
	for _, k := range kernels {
		if cpu.Uses(k.needs) && k.of == s && len(dst) > 0 {
			k.interleave(&dst[0], &codes[0], &scales[0], len(dst)/s.Bytes())
			return
		}
	}
	switch s {
	case BlockMXFP4:
		interleaveMXFP4(dst, codes, scales)
	case BlockNVFP4:
		interleaveNVFP4(dst, codes, scales)
	default:
		size, n := s.CodeBytes(), s.ScaleBytes
		for len(dst) > 0 {
			copy(dst, scales[:n])
			copy(dst[n:], codes[:size])
			dst, codes, scales = dst[n+size:], codes[size:], scales[n:]
		}
	}
}

// A kernel is Interleave for n structs, n > 0. The kernel table is in kernel_asm.go.
type kernel struct {
	needs      cpu.Set
	of         Struct
	interleave func(dst, codes, scales *byte, n int)
}

// Deinterleave splits the structs of src into codes and scales. It is the inverse of
// Interleave.
func (s Struct) Deinterleave(codes, scales, src []byte) {
	s.check(src, codes, scales)
	switch s {
	case BlockMXFP4:
		deinterleaveMXFP4(codes, scales, src)
	case BlockNVFP4:
		deinterleaveNVFP4(codes, scales, src)
	default:
		size, n := s.CodeBytes(), s.ScaleBytes
		for len(src) > 0 {
			copy(scales[:n], src)
			copy(codes[:size], src[n:])
			codes, scales, src = codes[size:], scales[n:], src[n+size:]
		}
	}
}

// Structs of 4-bit codes have separate loops with constant sizes, which are twice as fast: models
// are loaded through them.

func interleaveMXFP4(dst, codes, scales []byte) {
	const bytes, size = 17, 16
	for i, scale := range scales {
		out, block := dst[i*bytes:][:bytes], codes[i*size:][:size]
		first, second := binary.LittleEndian.Uint64(block), binary.LittleEndian.Uint64(block[8:])
		out[0] = scale
		binary.LittleEndian.PutUint64(out[1:], pair(first&lowHalf|second<<32))
		binary.LittleEndian.PutUint64(out[9:], pair(first>>32|second&^lowHalf))
	}
}

func deinterleaveMXFP4(codes, scales, src []byte) {
	const bytes, size = 17, 16
	for i := range scales {
		block, out := src[i*bytes:][:bytes], codes[i*size:][:size]
		scales[i] = block[0]
		first, second := unpair(binary.LittleEndian.Uint64(block[1:])), unpair(binary.LittleEndian.Uint64(block[9:]))
		binary.LittleEndian.PutUint64(out, first&lowHalf|second<<32)
		binary.LittleEndian.PutUint64(out[8:], first>>32|second&^lowHalf)
	}
}

func interleaveNVFP4(dst, codes, scales []byte) {
	const bytes, size, blocks = 36, 32, 4
	for i := range len(scales) / blocks {
		out, block := dst[i*bytes:][:bytes], codes[i*size:][:size]
		copy(out, scales[i*blocks:][:blocks])
		for j := 0; j < size; j += 8 {
			binary.LittleEndian.PutUint64(out[blocks+j:], pair(binary.LittleEndian.Uint64(block[j:])))
		}
	}
}

func deinterleaveNVFP4(codes, scales, src []byte) {
	const bytes, size, blocks = 36, 32, 4
	for i := range len(scales) / blocks {
		block, out := src[i*bytes:][:bytes], codes[i*size:][:size]
		copy(scales[i*blocks:][:blocks], block)
		for j := 0; j < size; j += 8 {
			binary.LittleEndian.PutUint64(out[j:], unpair(binary.LittleEndian.Uint64(block[blocks+j:])))
		}
	}
}

func (s Struct) check(structs, codes, scales []byte) {
	n := len(structs) / s.Bytes()
	if len(structs) != n*s.Bytes() || len(codes) != n*s.Blocks*s.CodeBytes() || len(scales) != n*s.Blocks*s.ScaleBytes {
		panic(fmt.Sprintf("ggml: %s: got %d bytes of structs, %d of codes and %d of scales, want those of equally many whole structs", s,
			len(structs), len(codes), len(scales)))
	}
}

// lowHalf is the lower half of a word.
const lowHalf = 1<<32 - 1

// pair shuffles the 16 nibbles of x: those of the lower half become the low nibbles of the
// bytes, and those of the upper half the high nibbles.
func pair(x uint64) uint64 {
	x = exchange(x, 16, 0x00000000ffff0000)
	x = exchange(x, 8, 0x0000ff000000ff00)
	return exchange(x, 4, 0x00f000f000f000f0)
}

// unpair is the inverse of pair.
func unpair(x uint64) uint64 {
	x = exchange(x, 4, 0x00f000f000f000f0)
	x = exchange(x, 8, 0x0000ff000000ff00)
	return exchange(x, 16, 0x00000000ffff0000)
}

// exchange exchanges the bits of x in mask with those n bits above them.
func exchange(x uint64, n int, mask uint64) uint64 {
	t := (x ^ x>>n) & mask
	return x ^ t ^ t<<n
}
