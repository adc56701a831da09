//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// packFP4 packs 4-bit codes as int8 elements.
func packFP4(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	if kc%packBlock != 0 {
		return false
	}
	block := s.kernel.block
	scales := w.scales[:kc/block*packLanes]
	if s.transpose(scales, l0, k0/block, kc/block) && !s.kernel.pow2 {
		return false // negative or NaN scales
	}
	n := s.t.RowBytes()
	rows := min(packLanes, s.t.StoredRows()-l0)
	var src []byte
	stride := n
	if rows == packLanes {
		src = s.t.Codes[l0*n+k0/2:]
	} else {
		stride = kc / 2
		src = w.codes[:packLanes*stride]
		for i := range rows {
			copy(src[i*stride:(i+1)*stride], s.t.Codes[(l0+i)*n+k0/2:])
		}
		clear(src[rows*stride:])
	}
	pack, table := packNV, &fp4Unsigned
	if s.isA {
		table = &fp4Signed
	}
	if s.kernel.pow2 {
		pack = packMX
	}
	s.packTiles(dst, kc, w, func(panel []byte, k, n int) {
		pack(unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[k/2]), stride, unsafe.Pointer(&scales[k/block*packLanes]), n/packBlock,
			unsafe.Pointer(table), 0)
	})
	return true
}

// packInterleavedFP4 is packFP4 for an interleaved operand. It copies 64 bytes of each row of the group to
// contiguous memory at a time. The order of the scales is that which the packing functions read.
func packInterleavedFP4(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	const rowBytes, positions = 64, 128
	if kc%positions != 0 {
		return false
	}
	group, block := l0/interleavedRows, s.kernel.block
	_, blocks := s.t.ScaleShape()
	codes := s.t.Codes[(group*s.t.RowBytes()+k0/2)*interleavedRows:]
	scales := s.t.Scales[(group*blocks+k0/block)*interleavedRows:]
	pack := packNV
	if s.kernel.pow2 {
		pack = packMX
	}
	rows, size := w.codes[:interleavedRows*rowBytes], s.panelBytes(block)
	for k := 0; k < kc; k += positions {
		transposeDwords16(unsafe.Pointer(&rows[0]), unsafe.Pointer(&codes[k/2*interleavedRows]), rowBytes, rowBytes/(4*interleavedBytes))
		pack(unsafe.Pointer(&dst[k/block*size]), unsafe.Pointer(&rows[0]), rowBytes, unsafe.Pointer(&scales[k/block*interleavedRows]),
			positions/packBlock,
			unsafe.Pointer(&fp4Unsigned), 0)
	}
	return true
}

// packIntegers packs INT8 elements. packInt loads a table, as packSix does, but does not use it: it must not be nil.
func packIntegers(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	return s.packBytes(dst, l0, k0, kc, w, copyCodes, packInt, &sixIntegers)
}

// packSixes packs E2M3 elements.
func packSixes(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	return s.packBytes(dst, l0, k0, kc, w, splitSix, packSix, &sixIntegers)
}

// packBytes packs elements, expanded to bytes by split, as int8 elements.
func (s *side) packBytes(dst []byte, l0, k0, kc int, w *scratch, split func(codes, src []byte, e *format.Scalar),
	pack func(dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, blocks int, table unsafe.Pointer, add uint32),
	table *[64]byte) bool {
	if kc%packBlock != 0 {
		return false
	}
	blocks := kc / packBlock
	scales := w.scales[:blocks*packLanes]
	s.transpose(scales, l0, k0/packBlock, blocks)
	src, stride := s.byteCodes(l0, k0, kc, w, split)
	add := uint32(int8Forms[s.t.Format.Element].bias)
	if s.isA {
		add = 0
	}
	s.packTiles(dst, kc, w, func(panel []byte, k, n int) {
		pack(unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[k]), stride, unsafe.Pointer(&scales[k/packBlock*packLanes]), n/packBlock,
			unsafe.Pointer(table), add)
	})
	return true
}

// packTiles fills an int8 panel over kc positions with pack, which fills a panel of B with positions
// k to k+n. For A, it splits such panels into the sub-panels of tiles. They have so few positions that
// they stay in the first-level cache.
func (s *side) packTiles(dst []byte, kc int, w *scratch, pack func(panel []byte, k, n int)) {
	if !s.isA {
		pack(dst, 0, kc)
		return
	}
	const maxPositions, dword = 512, 4
	_, steps := s.geometry(kc)
	var exponents uint32
	if s.kernel.pow2 {
		exponents = 1<<packLanes - 1
	}
	block, mr := s.kernel.block, s.kernel.MR
	for k := 0; k < kc; k += maxPositions {
		n := min(maxPositions, kc-k)
		size := n / block * (steps + 1) * packLanes * dword
		grow(&w.panel, size)
		pack(w.panel[:size], k, n)
		splitTiles(unsafe.Pointer(&dst[k/block*(steps+2)*mr*dword]), unsafe.Pointer(&w.panel[0]), len(dst)*mr/packLanes, steps, n/block,
			uint32(s.other), exponents)
	}
}

// sixIntegers holds the integers of E2M3's magnitudes for int8 panels.
var sixIntegers = func() (table [64]byte) {
	e := format.E2M3
	for code := range e.MaxCode() + 1 {
		table[code] = byte(e.Decode(code) / int8Forms[e].unit)
	}
	return table
}()

// fp4Signed and fp4Unsigned hold the integers of E2M1's codes for int8 panels of A and of B,
// once for each 128 bits of a vector.
var fp4Signed, fp4Unsigned = fp4Table(0), fp4Table(int8Forms[format.E2M1].bias)

func fp4Table(bias int32) (table [64]byte) {
	for i := range table {
		table[i] = byte(int32(format.E2M1.Decode(uint32(i%16))/int8Forms[format.E2M1].unit) + bias)
	}
	return table
}
