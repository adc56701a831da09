// Package checksum identifies the content of checkpoint files: checksums of tensors that are read
// or written in any order, and a metadata entry with those of a file and of its source.
package checksum

import (
	"github.com/minio/crc64nvme"
)

// Of returns the CRC-64/NVME of p. It detects every change within 64 adjacent bits, and
// all but one in 2^64 of other changes. It does not protect against deliberate changes.
func Of(p []byte) uint64 { return crc64nvme.Checksum(p) }

// A Sum computes the checksum of bytes that are added in parts, in any order. The exclusive or of
// the values of sums over disjoint parts is the value of their union. The value of all parts is
// the checksum.
type Sum struct {
	size int64 // of all bytes
	done uint64
	run  uint64 // of parts in ascending order, as if the bytes ended after the last
	end  int64  // of the last part of the run

	distance int64 // between the ends of the last two parts, and its factor
	factor   uint64
}

// New returns a sum over size bytes, without any part yet.
func New(size int64) *Sum { return &Sum{size: size} }

// Add adds the part that starts at byte off.
func (s *Sum) Add(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	if off < s.end {
		s.done, s.run, s.end = s.Value(), 0, 0
	}
	end := off + int64(len(p))
	if n := end - s.end; s.run != 0 {
		if n != s.distance {
			s.distance, s.factor = n, zeros(n)
		}
		s.run = multiply(s.run, s.factor)
	}
	s.run ^= Of(p)
	s.end = end
}

// Value returns the contribution of the added parts to the checksum.
func (s *Sum) Value() uint64 {
	if s.run == 0 {
		return s.done
	}
	return s.done ^ multiply(s.run, zeros(s.size-s.end))
}

// Checksums are remainders of polynomials over GF(2) modulo P, with the
// highest power in the lowest bit. Another byte multiplies the remainder of the bytes before it
// by x^8.
const (
	polynomial = 0x9a6c9329ac4bc9b5 // P without x^64
	one        = 1 << 63
)

// multiply returns a·b mod P.
func multiply(a, b uint64) (product uint64) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 63)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}

// powers holds x^(8·n) for n = d·16^i at [i][d].
var powers = func() (p [16][16]uint64) {
	step := uint64(one >> 8)
	for i := range p {
		p[i][0] = one
		for d := 1; d < 16; d++ {
			p[i][d] = multiply(p[i][d-1], step)
		}
		step = multiply(p[i][15], step)
	}
	return p
}()

// zeros returns x^(8n) mod P.
func zeros(n int64) uint64 {
	product := uint64(one)
	for i := 0; n > 0; i, n = i+1, n>>4 {
		if n&15 != 0 {
			product = multiply(product, powers[i][n&15])
		}
	}
	return product
}
