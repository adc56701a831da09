//go:build !purego

package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// The lines of a panel of AVX-512, and the positions that packing in assembly
// takes in one iteration.
const (
	packLanes = 16
	packBlock = 32
)

// inBlocks reports whether kc positions are whole blocks of packing in assembly, and so
// are their chunks.
func (s *side) inBlocks(kc int) bool {
	chunks, steps := s.geometry(kc)
	return kc%packBlock == 0 && (chunks == 1 || steps*s.kernel.panel.perStep()%packBlock == 0)
}

// part returns chunk c of a panel over kc positions, and how many it has of these; what
// fills it up is cleared.
func (s *side) part(panel []byte, c, kc int) (chunk []byte, positions int) {
	chunks, steps := s.geometry(kc)
	step, per, size := 4*s.kernel.Lanes, s.kernel.panel.perStep(), len(panel)/chunks
	chunk, positions = panel[c*size:(c+1)*size], min(steps*per, kc-c*steps*per)
	clear(chunk[ceilDiv(positions, per)*step : steps*step])
	return chunk, positions
}

// packDwords packs elements that are the same in the panel, bit by bit.
func packDwords(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	lanes, n, size := s.kernel.Lanes, s.t.LineBytes(), s.t.Format.Element.StoredBits()/8
	if !s.inBlocks(kc) {
		return false
	}
	chunks, steps := s.geometry(kc)
	codes := s.t.Codes[l0*n+k0*size:]
	if rows := s.t.Lines() - l0; rows < lanes {
		line := kc * size
		grow(&w.codes, lanes*line)
		for i := range rows {
			copy(w.codes[i*line:(i+1)*line], codes[i*n:])
		}
		clear(w.codes[rows*line : lanes*line])
		codes, n = w.codes, line
	}
	for c := range chunks {
		chunk, positions := s.part(dst, c, kc)
		to, from, dwords := unsafe.Pointer(&chunk[0]), unsafe.Pointer(&codes[c*steps*4]), positions*size/4
		if s.byLines() {
			copyLines(to, from, n, dwords/tileSteps)
		} else if lanes == packLanes {
			transposeDwords16(to, from, n, dwords/4)
		} else {
			transposeDwords8(to, from, n, dwords/8)
		}
	}
	s.putScales(dst, l0, k0, chunks, steps)
	return true
}

// putScales writes the scales of the panel's chunks.
func (s *side) putScales(dst []byte, l0, k0, chunks, steps int) {
	lanes, chunkWords, span := s.kernel.Lanes, (steps+1)*s.kernel.Lanes, steps*s.kernel.panel.perStep()
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(dst))), chunks*chunkWords)[steps*lanes:]
	if s.scales != perChunk || s.t.Scales32 == nil {
		for c := range chunks {
			for i := range lanes {
				words[c*chunkWords+i] = math.Float32bits(1)
				if s.scales != folded {
					words[c*chunkWords+i] = s.scaleWord(l0+i, k0+c*span)
				}
			}
		}
		return
	}
	_, cols := s.t.ScaleShape()
	last, block := s.t.Lines()-1, s.t.Format.Block
	for i := range lanes {
		line := s.t.Scales32 // of one block for all lines
		if block.Rows > 0 {
			line = line[min(l0+i, last)/block.Rows*cols:]
		}
		for c := range chunks {
			col := 0
			if block.Cols > 0 {
				col = (k0 + c*span) / block.Cols
			}
			words[c*chunkWords+i] = math.Float32bits(line[col])
		}
	}
}

// packBF16 packs codes by way of bytes.
func packBF16(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	if !s.inBlocks(kc) {
		return false
	}
	chunks, steps := s.geometry(kc)
	src, stride := s.byteCodes(l0, k0, kc, w)
	tables := bf16Tables[s.t.Format.Element]
	pack := packBytesBF16
	switch integer := s.t.Format.Element.Integer; {
	case integer && s.byLines():
		pack = packIntegersLines
	case integer:
		pack = packIntegersBF16
	case s.byLines():
		pack = packBytesLines
	}
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
		if pack(unsafe.Pointer(&chunk[0]), unsafe.Pointer(&src[c*all*packBlock]), stride, unsafe.Pointer(&exponents[0]), blocks, unsafe.Pointer(&tables.bytes), tables.special) != 0 {
			return false
		}
	}
	s.putScales(dst, l0, k0, chunks, steps)
	return true
}

// bf16Table has the BF16 values of the codes of one element format without their
// sign, low bytes before high ones, and the first code that is not finite.
type bf16Table struct {
	bytes   [256]byte
	special uint32
}

var bf16Tables = func() map[*format.Scalar]*bf16Table {
	tables := map[*format.Scalar]*bf16Table{}
	for _, e := range format.All() {
		if e.Bits() > 8 || e.Unsigned || e.Specials == format.UnsignedZero {
			continue
		}
		t := &bf16Table{special: e.MaxCode() + 1}
		for code := range uint32(128) {
			bits := math.Float32bits(e.Decode(code&(1<<(e.Bits()-1)-1))) >> 16
			t.bytes[code], t.bytes[128+code] = byte(bits), byte(bits>>8)
		}
		tables[e] = t
	}
	return tables
}()

// tablesBF16 and tableFP4 are the tables of vector kernels.
func tablesBF16(e *format.Scalar) unsafe.Pointer { return unsafe.Pointer(&bf16Tables[e].bytes) }

func tableFP4(*format.Scalar) unsafe.Pointer { return unsafe.Pointer(&fp4BF16) }

// tableInt8 has what integer kernels for few lines make of the codes of an element
// format, and the E8M0 scales that they take.
func tableInt8(e *format.Scalar) unsafe.Pointer { return unsafe.Pointer(int8Tables[e]) }

type int8Table struct {
	integers    [64]byte // of each code, and the bias; the bias alone of codes of 8 bits, which are the integers
	least, span [16]byte // of E8M0 scales, in each byte
}

var int8Tables = func() map[*format.Scalar]*int8Table {
	tables := map[*format.Scalar]*int8Table{}
	for e, form := range int8Forms {
		table := new(int8Table)
		for i := range table.integers {
			table.integers[i] = byte(form.bias)
			if e.StoredBits() < 8 {
				table.integers[i] += byte(int32(e.Decode(uint32(i)&(1<<e.StoredBits()-1)) / form.unit))
			}
		}
		for i := range table.least {
			table.least[i], table.span[i] = leastExponent, largestExponent-leastExponent
		}
		tables[e] = table
	}
	return tables
}()

// fp4BF16 has the BF16 values of E2M1's codes, twice.
var fp4BF16 = func() (table [32]uint16) {
	for i := range table {
		table[i] = uint16(format.BF16.Encode(format.E2M1.Decode(uint32(i % 16))))
	}
	return table
}()

// byteCodes returns codes k0…k0+kc of 16 lines, one per byte and with the sign in
// the top bit, and the bytes from line to line. Lines past the last are zeros.
func (s *side) byteCodes(l0, k0, kc int, w *scratch) (codes []byte, stride int) {
	e, n := s.t.Format.Element, s.t.LineBytes()
	rows := min(packLanes, s.t.Lines()-l0)
	if e.StoredBits() == 8 && rows == packLanes {
		return s.t.Codes[l0*n+k0:], n
	}
	codes = w.codes[:packLanes*kc]
	for i := range rows {
		line := s.t.Codes[(l0+i)*n : (l0+i+1)*n]
		split(codes[i*kc:(i+1)*kc], line[k0*e.StoredBits()/8:], e)
	}
	clear(codes[rows*kc:])
	return codes, kc
}

// split is e.Split with the sign moved to the top bit.
func split(codes, src []byte, e *format.Scalar) {
	const unit = 64
	n := len(codes) / unit
	switch {
	case n == 0:
	case e.StoredBits() == 4:
		splitNibbles(unsafe.Pointer(&codes[0]), unsafe.Pointer(&src[0]), n)
	case e.StoredBits() == 6:
		splitSixes(unsafe.Pointer(&codes[0]), unsafe.Pointer(&src[0]), n)
	default:
		copy(codes, src)
		return
	}
	rest := codes[n*unit:]
	src = src[n*unit*e.StoredBits()/8:]
	if len(rest) > 0 {
		bytes, _ := e.StoredBytes(len(rest))
		e.Split(rest, src[:bytes])
		sign := byte(1) << (e.Bits() - 1)
		for i, c := range rest {
			rest[i] = c&^sign | c&sign<<(8-e.Bits())
		}
	}
}

// transpose sets dst to the scale codes of 16 lines, for blocks from block on:
// all lines of one block, then those of the next. It reports whether one was
// above hi. Lines past the last repeat it.
func (s *side) transpose(dst []byte, l0, block, blocks int) (above bool) {
	first, stride := s.scaleIndex(l0, 0)+block, 0
	if s.t.Format.Block.Rows == 1 {
		_, stride = s.t.ScaleShape()
	}
	const unit = 16
	n, lines, scales := 0, s.t.Lines(), s.t.Scales
	if stride == 0 || l0+packLanes <= lines {
		if n = blocks / unit; n > 0 {
			above = transposeScales(unsafe.Pointer(&dst[0]), unsafe.Pointer(&scales[first]), stride, n, uint32(s.lo), uint32(s.hi)) != 0
		}
	}
	if n*unit == blocks {
		return above
	}
	lo, hi := s.lo, s.hi
	for i := range packLanes {
		line := scales[first+min(i, lines-1-l0)*stride:][n*unit : blocks]
		out := dst[n*unit*packLanes+i:]
		for b, code := range line {
			above = above || code > hi
			out[b*packLanes] = min(max(code, lo), hi)
		}
	}
	return above
}

// foldBlock is the nibbles that share a scale which packFolded multiplies them by.
const foldBlock = 16

// packFolded packs nibbles times their scales by way of lines of BF16.
func packFolded(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	if !s.inBlocks(kc) {
		return false
	}
	chunks, steps := s.geometry(kc)
	n, lines := s.t.LineBytes(), s.t.Lines()
	grow(&w.words, packLanes*kc)
	blocks := kc / foldBlock
	scales, decode := w.values[:blocks], f32Tables[s.t.Format.Scale]
	for i := range packLanes {
		line := w.words[i*kc : (i+1)*kc]
		l := l0 + i
		if l >= lines {
			clear(line)
			continue
		}
		for b, code := range s.t.Scales[s.scaleIndex(l, k0):][:blocks] {
			scales[b] = decode[code]
		}
		foldNibbles(unsafe.Pointer(&line[0]), unsafe.Pointer(&s.t.Codes[l*n+k0/2]), unsafe.Pointer(&scales[0]), blocks, unsafe.Pointer(f32Tables[s.t.Format.Element]))
	}
	for c := range chunks {
		chunk, positions := s.part(dst, c, kc)
		to, from := unsafe.Pointer(&chunk[0]), unsafe.Pointer(&w.words[c*steps*2])
		if s.byLines() {
			copyLines(to, from, 2*kc, positions/packBlock)
		} else {
			transposeDwords16(to, from, 2*kc, positions/8)
		}
	}
	s.putScales(dst, l0, k0, chunks, steps)
	return true
}

// packFP4 packs nibbles as int8 elements.
func packFP4(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	if kc%packBlock != 0 {
		return false
	}
	block := s.kernel.block
	scales := w.scales[:kc/block*packLanes]
	if s.transpose(scales, l0, k0/block, kc/block) && !s.kernel.pow2 {
		return false // negative scales, or NaN
	}
	n := s.t.LineBytes()
	rows := min(packLanes, s.t.Lines()-l0)
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
	pack, base, table := packNVB, uint32(0), &fp4Unsigned
	switch {
	case s.isA && s.kernel.pow2:
		pack, table = packMXA, &fp4Signed
	case s.isA:
		pack, table = packNVA, &fp4Signed
	case s.kernel.pow2:
		pack, base = packMXB, uint32(format.E8M0.Bias)
	}
	pack(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), stride, unsafe.Pointer(&scales[0]), kc/packBlock, unsafe.Pointer(table), base, uint32(s.other))
	return true
}

// packInt8 packs E2M3 and INT8 elements by way of bytes.
func packInt8(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
	if kc%packBlock != 0 {
		return false
	}
	blocks := kc / packBlock
	scales := w.scales[:blocks*packLanes]
	s.transpose(scales, l0, k0/packBlock, blocks)
	src, stride := s.byteCodes(l0, k0, kc, w)
	pack := packSixB
	base, bias := uint32(format.E8M0.Bias), uint32(int8Forms[s.t.Format.Element].bias)
	switch integer := s.t.Format.Element.Integer; {
	case integer && s.isA:
		pack = packIntA
	case integer:
		pack = packIntB
	case s.isA:
		pack = packSixA
	}
	if s.isA {
		base, bias = 0, uint32(s.other)
	}
	pack(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), stride, unsafe.Pointer(&scales[0]), blocks, unsafe.Pointer(&sixIntegers), base, bias)
	return true
}

// sixIntegers has the integers of E2M3's magnitudes in int8 panels.
var sixIntegers = func() (table [64]byte) {
	e := format.E2M3
	for code := range e.MaxCode() + 1 {
		table[code] = byte(e.Decode(code) / int8Forms[e].unit)
	}
	return table
}()

// fp4Signed and fp4Unsigned have the integers of E2M1's codes in int8 panels of A
// and of B, once for each 128 bits of a vector.
var fp4Signed, fp4Unsigned = fp4Table(0), fp4Table(int8Forms[format.E2M1].bias)

func fp4Table(bias int32) (table [64]byte) {
	for i := range table {
		table[i] = byte(int32(format.E2M1.Decode(uint32(i%16))/int8Forms[format.E2M1].unit) + bias)
	}
	return table
}
