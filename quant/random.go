package quant

import "math/bits"

// A Stream is a source of random bits without state: the bits of an element
// depend on the fields and the element's index alone. So they are the same in any
// order and on any number of threads, and can be drawn again.
//
// It is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011), the generator of PyTorch and Transformer Engine. Seed is Philox's
// key. The other fields are in its counter, with the element's index:
//
//	counter  word 0, 1: index/4   word 2: step   word 3: tensor, operand and direction
//	element i takes word i mod 4 of the output
type Stream struct {
	Seed      uint64
	Step      uint32
	Tensor    uint32 // which tensor; below 2^24
	Operand   uint8  // which use of it; below 2^7
	Direction Direction
}

// At returns the 32 random bits of element i.
func (s *Stream) At(i uint64) uint32 { return s.block(i / 4)[i%4] }

// block returns the random bits of elements 4·block to 4·block+3.
func (s *Stream) block(block uint64) [4]uint32 {
	counter := [4]uint32{
		uint32(block), uint32(block >> 32), s.Step,
		s.key(),
	}
	return philox(counter, uint32(s.Seed), uint32(s.Seed>>32))
}

// key is word 3 of the counter.
func (s *Stream) key() uint32 { return s.Tensor<<8 | uint32(s.Operand)<<1 | uint32(s.Direction) }

const (
	philoxWeyl0, philoxWeyl1 = 0x9e3779b9, 0xbb67ae85
	philoxRounds             = 10
)

// philox is ten rounds of Philox4x32.
func philox(c [4]uint32, k0, k1 uint32) [4]uint32 {
	const multiplier0, multiplier1 = 0xd2511f53, 0xcd9e8d57
	for range philoxRounds {
		hi0, lo0 := bits.Mul32(multiplier0, c[0])
		hi1, lo1 := bits.Mul32(multiplier1, c[2])
		c = [4]uint32{hi1 ^ c[1] ^ k0, lo1, hi0 ^ c[3] ^ k1, lo0}
		k0, k1 = k0+philoxWeyl0, k1+philoxWeyl1
	}
	return c
}
