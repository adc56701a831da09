//go:build !purego

package gemm

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// rowDwords and dwords16 are dwords8 for tiles and for 16 lanes.

func rowDwords(to, from unsafe.Pointer, row, _, dwords int) {
	copyRows(to, from, row, dwords/tileSteps)
}

func dwords16(to, from unsafe.Pointer, row, _, dwords int) {
	transposeDwords16(to, from, row, dwords/4)
}

// packBF16 packs codes of at most eight bits, expanded to bytes, as BF16.
func packBF16(pack func(dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, blocks int, table unsafe.Pointer, mask,
	special uint32) uint64) packFunc {
	return func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
		if !s.inBlocks(kc) {
			return false
		}
		chunks, steps := s.geometry(kc)
		src, stride := s.byteCodes(l0, k0, kc, w, split)
		tables := bf16Tables[s.t.Format.Element]
		all := steps * s.kernel.panel.perStep() / packBlock // blocks of a chunk
		exponents := w.scales[:all*packLanes]
		for i := range exponents {
			exponents[i] = byte(format.E8M0.Bias) // 2^0
		}
		for c := range chunks {
			chunk, positions := s.part(dst, c, kc)
			blocks := positions / packBlock
			if s.scales != perChunk {
				s.transpose(exponents[:blocks*packLanes], l0, k0/packBlock+c*all, blocks)
			}
			codes := src[c*all*packBlock:]
			if pack(unsafe.Pointer(&chunk[0]), unsafe.Pointer(&codes[0]), stride, unsafe.Pointer(&exponents[0]), blocks,
				unsafe.Pointer(&tables.bytes), tables.mask, tables.special) != 0 {
				if !s.t.Format.Element.Integer {
					return false
				}
				s.putLowest(chunk, codes, stride, exponents, positions)
			}
		}
		s.putScales(dst, l0, k0, chunks, steps)
		return true
	}
}

// putLowest writes the elements of a chunk whose code is the lowest of two's complement, 0x80: its
// magnitude is not in the tables. Its value is -2.
func (s *side) putLowest(chunk, codes []byte, stride int, exponents []byte, positions int) {
	const lowest, sign, mantissa = 0x80, 0x8000, 7
	halves := unsafe.Slice((*uint16)(unsafe.Pointer(&chunk[0])), len(chunk)/2)
	for i := range packLanes {
		row := codes[i*stride:][:positions]
		for k := 0; k < positions; k++ {
			next := bytes.IndexByte(row[k:], lowest)
			if next < 0 {
				break
			}
			k += next
			exponent := uint16(exponents[k/packBlock*packLanes+i]) + 1
			halves[2*s.word(k/2, i)+k%2] = sign | exponent<<mantissa
		}
	}
}

// bf16Table holds the BF16 values of the codes of an element format without their sign (all
// low bytes, then all high bytes), what vector kernels do with scales, the first code that is not
// finite, and the bits that codes have: all in two's complement, or those of the magnitude.
type bf16Table struct {
	bytes         [256]byte
	scales        bf16Scales
	special, mask uint32
}

// bf16Scales describes how vector kernels convert the scales of 512 codes to a float32 number for each 32
// codes: the byte that each byte of the result takes, and the bits by which each dword then shifts.
// Of the first 16, bytes plus the number add that are less than limit stand for scales that the kernel
// does not support. loaded has a bit for each byte of the scales.
type bf16Scales struct {
	index      [64]byte
	shifts     [16]uint32
	add, limit [16]byte
	loaded     uint64
	bytes      int
}

// scalesE8M0 are the codes of a block of 32, moved to the exponent field. 0 and 255 would become zero
// and infinity.
var scalesE8M0 = func() (s bf16Scales) {
	const zero = 16 // the first byte past the scales
	for i := range s.index {
		s.index[i] = zero
	}
	for i := range s.shifts {
		s.index[4*i], s.shifts[i] = byte(i), 23
		s.add[i], s.limit[i] = 1, 2
	}
	s.loaded, s.bytes = 1<<zero-1, zero
	return s
}()

// scalesF32 returns the conversion of numbers for blocks of 32 or 128.
func scalesF32(block int) (s bf16Scales) {
	const word, each = 4, 32 // bytes of a number, and codes for which the kernel takes one
	for i := range s.index {
		s.index[i] = byte(i/(word*block/each)*word + i%word)
	}
	s.bytes = len(s.index) * each / block
	s.loaded = 1<<s.bytes - 1
	return s
}

var bf16Tables = func() map[*format.Scalar]*bf16Table {
	tables := map[*format.Scalar]*bf16Table{}
	for _, e := range format.All() {
		if e.Bits() > 8 || e.Unsigned || !e.HasNegativeZero() && e != format.INT8 {
			continue
		}
		t := &bf16Table{scales: scalesE8M0, special: e.MaxCode() + 1, mask: 0x7f}
		if e.Integer {
			t.mask = 0xff
		}
		for code := range uint32(128) {
			bits := math.Float32bits(e.Decode(code&(1<<(e.Bits()-1)-1))) >> 16
			t.bytes[code], t.bytes[128+code] = byte(bits), byte(bits>>8)
		}
		tables[e] = t
	}
	return tables
}()

// tablesBF16, tablesBF16x128, tableBF16Int, tableBF16Single, tableBF16x6 and tableFP4 return the tables of
// the BF16 vector kernels, or nil for an unsupported element format.
func tablesBF16(e *format.Scalar) unsafe.Pointer {
	if e.Integer {
		return nil
	}
	return unsafe.Pointer(bf16Tables[e])
}

// tableBF16Int and tableBF16Single return the tables of integers with scales in E8M0 and in float32.
func tableBF16Int(e *format.Scalar) unsafe.Pointer    { return bf16Integers(e, bf16Int) }
func tableBF16Single(e *format.Scalar) unsafe.Pointer { return bf16Integers(e, bf16Single) }

func bf16Integers(e *format.Scalar, t *bf16Table) unsafe.Pointer {
	if e != format.INT8 {
		return nil
	}
	return unsafe.Pointer(t)
}

var bf16Int, bf16Single = newBF16Integers(scalesE8M0), newBF16Integers(scalesF32(32))

// newBF16Integers returns the table of INT8. The magnitude of its lowest code, -2, is where that of 0 is
// otherwise: both have an index of 0. Kernels clear the high byte of 0, and the low byte of 2 is 0.
func newBF16Integers(scales bf16Scales) *bf16Table {
	t := *bf16Tables[format.INT8]
	lowest := math.Float32bits(-format.INT8.Decode(1<<7)) >> 16
	t.bytes[128], t.scales = byte(lowest>>8), scales
	return &t
}

// tableBF16x6 returns the table of 6-bit codes: the low and the high bytes of their BF16 values, and for
// each byte of the codes in separate bytes the byte to take from three that hold four codes, and the bit
// of the quadword at which the code then begins.
func tableBF16x6(e *format.Scalar) unsafe.Pointer { return unsafe.Pointer(bf16Tables6[e]) }

var bf16Tables6 = func() map[*format.Scalar]*bf16Table {
	const codes = 64
	tables := map[*format.Scalar]*bf16Table{}
	for _, e := range []*format.Scalar{format.E2M3, format.E3M2} {
		t := &bf16Table{scales: scalesE8M0}
		for i := range codes {
			bits := math.Float32bits(e.Decode(uint32(i))) >> 16
			t.bytes[i], t.bytes[codes+i] = byte(bits), byte(bits>>8)
			t.bytes[2*codes+i] = byte(i/4*3 + i%4)
			t.bytes[3*codes+i] = byte(i/4%2*32 + i%4*6)
		}
		tables[e] = t
	}
	return tables
}()

func tablesBF16x128(e *format.Scalar) unsafe.Pointer { return unsafe.Pointer(bf16Tables128[e]) }

var bf16Tables128 = func() map[*format.Scalar]*bf16Table {
	tables := map[*format.Scalar]*bf16Table{}
	for e, t := range bf16Tables {
		blocks := *t
		blocks.scales = scalesF32(128)
		tables[e] = &blocks
	}
	return tables
}()

func tableFP4(*format.Scalar) unsafe.Pointer { return unsafe.Pointer(&fp4BF16) }

// fp4BF16 holds the BF16 values of the E2M1 codes, twice.
var fp4BF16 = func() (table [32]uint16) {
	for i := range table {
		table[i] = uint16(format.BF16.Encode(format.E2M1.Decode(uint32(i % 16))))
	}
	return table
}()

// byteCodes returns codes k0…k0+kc of 16 rows, one per byte with the sign in the top bit, and
// the row stride in bytes. Rows past the last are zeros. split separates codes of fewer bits.
func (s *side) byteCodes(l0, k0, kc int, w *scratch, split func(codes, src []byte, e *format.Scalar)) (codes []byte, stride int) {
	e, n := s.t.Format.Element, s.t.RowBytes()
	rows := min(packLanes, s.t.StoredRows()-l0)
	if e.StoredBits() == 8 && rows == packLanes {
		return s.t.Codes[l0*n+k0:], n
	}
	codes = w.codes[:packLanes*kc]
	for i := range rows {
		row := s.t.Codes[(l0+i)*n : (l0+i+1)*n]
		split(codes[i*kc:(i+1)*kc], row[k0*e.StoredBits()/8:], e)
	}
	clear(codes[rows*kc:])
	return codes, kc
}

// splitUnit is the number of codes that splitNibbles and splitSixes separate at a time.
const splitUnit = 64

// split separates codes of any size.
func split(codes, src []byte, e *format.Scalar) {
	if e.StoredBits() == 4 {
		n := len(codes) / splitUnit
		if n > 0 {
			splitNibbles(unsafe.Pointer(&codes[0]), unsafe.Pointer(&src[0]), n)
		}
		splitRest(codes, src, e, n)
		return
	}
	splitBytes(codes, src, e)
}

// splitBytes separates codes of six or eight bits.
func splitBytes(codes, src []byte, e *format.Scalar) {
	if e.StoredBits() == 6 {
		splitSix(codes, src, e)
		return
	}
	copyCodes(codes, src, e)
}

func splitSix(codes, src []byte, e *format.Scalar) {
	n := len(codes) / splitUnit
	if n > 0 {
		splitSixes(unsafe.Pointer(&codes[0]), unsafe.Pointer(&src[0]), n)
	}
	splitRest(codes, src, e, n)
}

// copyCodes is for codes of eight bits.
func copyCodes(codes, src []byte, _ *format.Scalar) { copy(codes, src) }

// splitRest separates the codes after the first n units with e.Split, and moves their sign to the top bit.
func splitRest(codes, src []byte, e *format.Scalar, n int) {
	rest := codes[n*splitUnit:]
	if len(rest) == 0 {
		return
	}
	src = src[n*splitUnit*e.StoredBits()/8:]
	bytes, _ := e.StoredBytes(len(rest))
	e.Split(rest, src[:bytes])
	sign := byte(1) << (e.Bits() - 1)
	for i, c := range rest {
		rest[i] = c&^sign | c&sign<<(8-e.Bits())
	}
}

// transpose sets dst to the scale codes of 16 rows from the given block on: the codes of all
// rows for one block, then those for the next. It clamps the codes to [lo, hi] and reports
// whether one was above hi. Rows past the last repeat the last.
func (s *side) transpose(dst []byte, l0, block, blocks int) (above bool) {
	first, stride := s.scaleIndex(l0, 0)+block, 0
	if s.t.Format.Block.Rows == 1 {
		_, stride = s.t.ScaleShape()
	}
	const unit = 16
	n, last, scales := 0, s.t.StoredRows()-1, s.t.Scales
	if stride == 0 || l0+packLanes <= last+1 {
		if n = blocks / unit; n > 0 {
			above = transposeScales(unsafe.Pointer(&dst[0]), unsafe.Pointer(&scales[first]), stride, n, uint32(s.lo), uint32(s.hi)) != 0
		}
	}
	if n*unit == blocks {
		return above
	}
	lo, hi := s.lo, s.hi
	for i := range packLanes {
		row := scales[first+min(i, last-l0)*stride:][n*unit : blocks]
		out := dst[n*unit*packLanes+i:]
		for b, code := range row {
			above = above || code > hi
			out[b*packLanes] = min(max(code, lo), hi)
		}
	}
	return above
}

// foldBlock is the block size of packFolded.
const foldBlock = 16

// packFolded packs 4-bit codes times their scales as BF16, with rowDwords or dwords16.
func packFolded(transpose func(to, from unsafe.Pointer, row, lanes, dwords int)) packFunc {
	return func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
		if !s.inBlocks(kc) {
			return false
		}
		chunks, steps := s.geometry(kc)
		n := s.t.RowBytes()
		grow(&w.words, packLanes*kc)
		blocks := kc / foldBlock
		scales, decode := w.values[:blocks], f32Tables[s.t.Format.Scale]
		for i := range packLanes {
			row := w.words[i*kc : (i+1)*kc]
			l := l0 + i
			if l >= s.t.StoredRows() {
				clear(row)
				continue
			}
			for b, code := range s.t.Scales[s.scaleIndex(l, k0):][:blocks] {
				scales[b] = decode[code]
			}
			foldNibbles(unsafe.Pointer(&row[0]), unsafe.Pointer(&s.t.Codes[l*n+k0/2]), unsafe.Pointer(&scales[0]), blocks,
				unsafe.Pointer(f32Tables[s.t.Format.Element]))
		}
		for c := range chunks {
			chunk, positions := s.part(dst, c, kc)
			transpose(unsafe.Pointer(&chunk[0]), unsafe.Pointer(&w.words[c*steps*2]), 2*kc, packLanes, positions/2)
		}
		s.putScales(dst, l0, k0, chunks, steps)
		return true
	}
}
