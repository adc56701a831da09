package mma

import (
	"encoding/binary"
	"math"
	"slices"
)

// packed holds an operand as the kernels read it: group by group of products, and in a group row
// by row for A, or by k for the 64 columns of a panel of B.
type packed struct {
	values []float32 // of the elements, without scales
	exps   []int16   // their exponents; zeroExp for zeros
	bytes  []byte    // FP4 instead: A as 2·value + 12, B as int8 2·value in words of four k
	masks  []int32   // FP4: which elements of 16 are not zero, none under a zero scale
	sums   []int32   // FP4: 12·Σ of B's bytes over 16
	scales []float64 // FP4: of each block of 16
	scaleE []int32   // exponents of the scales of each block of 16, or step

	specials []bool // rows of A with NaN or Inf, scales included
	special  uint64 // such columns of a panel
}

// zeroExp is the exponent of a zero. Its sum with any other exponent is below those of nonzero
// products, which are -252 or more.
const zeroExp = -10000

// codeTable has what packing needs of each code of a type of one byte.
type codeTable struct {
	value   [256]float32 // 0 for NaN and Inf
	exp     [256]int16   // zeroExp for zeros
	half    [256]int8    // twice the value, of E2M1
	nonzero [256]uint32  // 1 or 0
	special [256]bool    // NaN or Inf
}

// codeTables has the table of each one-byte operand type.
var codeTables = func() map[*Type]*codeTable {
	tables := map[*Type]*codeTable{}
	for _, t := range append([]*Type{e4m3fnuz, e5m2fnuz}, five...) {
		table := new(codeTable)
		for code := range 256 {
			n := t.number(uint64(code))
			table.special[code], table.exp[code] = n.kind != finite, zeroExp
			if n.kind != finite || n.sig == 0 {
				continue
			}
			table.value[code], table.exp[code], table.nonzero[code] = float32(n.value()), int16(n.exp), 1
			if t == e2m1 {
				table.half[code] = int8(2 * n.value())
			}
		}
		tables[t] = table
	}
	return tables
}()

// unpack sets values and exps to those of codes, 0 for NaN and Inf. It reports whether there are
// any.
func (t *Type) unpack(values []float32, exps []int16, codes []byte) (special bool) {
	switch t {
	case f16:
		for i := range values {
			u := uint32(binary.LittleEndian.Uint16(codes[2*i:]))
			field := int16(u >> 10 & 0x1f)
			// A power of two corrects the exponent bias, and normalizes subnormals.
			v := math.Float32frombits(u&0x7fff<<13) * 0x1p112
			exps[i] = max(field, 1) - 15
			if v == 0 {
				exps[i] = zeroExp
			}
			if field == 0x1f {
				special, v, exps[i] = true, 0, zeroExp
			}
			values[i] = math.Float32frombits(math.Float32bits(v) | u>>15<<31)
		}
	case bf16:
		for i := range values {
			values[i], exps[i], special = decompose(uint32(binary.LittleEndian.Uint16(codes[2*i:]))<<16, special)
		}
	case tf32, f32:
		for i := range values {
			values[i], exps[i], special = decompose(binary.LittleEndian.Uint32(codes[4*i:])&^uint32(t.unread), special)
		}
	default:
		table := codeTables[t]
		for i := range values {
			c := codes[i]
			values[i], exps[i], special = table.value[c], table.exp[c], special || table.special[c]
		}
	}
	return special
}

// unpack is Type.unpack as the unit reads operands: CDNA2 reads subnormals and -0 as +0.
func (u fastUnit) unpack(t *Type, values []float32, exps []int16, codes []byte) (special bool) {
	special = t.unpack(values, exps, codes)
	if u.kind == trees {
		smallest := t.Scalar.SmallestNormal()
		for i, v := range values {
			if -smallest < v && v < smallest {
				values[i] = 0
			}
		}
	}
	return special
}

// decompose returns a float32 and its exponent, for unpack. special is true if it was, or for NaN and
// Inf.
func decompose(bits uint32, special bool) (float32, int16, bool) {
	field := int16(bits >> 23 & 0xff)
	switch {
	case bits<<1 == 0:
		return math.Float32frombits(bits), zeroExp, special // CDNA1 adds -0
	case field == 0xff:
		return 0, zeroExp, true
	}
	return math.Float32frombits(bits), max(field, 1) - 127, special
}

// pack packs rows of A, the rows of a tile.
func (p *packed) pack(u fastUnit, m Matrix, first, rows int) {
	p.resize(u, m.K, rows)
	p.specials = append(p.specials[:0], make([]bool, rows)...)
	for i := range rows {
		codes := m.row(u.A, first+i)
		if u.kind == exactDots {
			for g := range m.K / u.step {
				p.packDots(codeTables[u.A], codes[g*u.step:][:u.step], (g*rows+i)*u.step)
			}
		}
		special := u.kind != exactDots && p.packRow(u, codes, i, rows)
		if p.packScales(u, m, first+i, func(g, block, blocks int) int { return (g*rows+i)*blocks + block }) || special {
			p.specials[i] = true
		}
	}
}

// packRow packs row i of A. It reports whether it has NaN or Inf.
func (p *packed) packRow(u fastUnit, codes []byte, i, rows int) (special bool) {
	var values lanes[float32]
	var exps lanes[int16]
	var buffer [panelCols]byte
	k := len(codes) / u.A.Bytes
	for from := 0; from < k; from += panelCols {
		n := min(panelCols, k-from)
		special = u.unpack(u.A, values[:n], exps[:n], u.ordered(&buffer, codes, from, n, u.A.Bytes)) || special
		for x := 0; x < n; x += u.step { // steps divide panelCols
			at := ((from+x)/u.step*rows + i) * u.step
			copy(p.values[at:][:u.step], values[x:])
			if u.aligns() {
				copy(p.exps[at:][:u.step], exps[x:])
			}
		}
	}
	return special
}

// packDots packs a group of a row of A for exact dot products.
func (p *packed) packDots(table *codeTable, codes []byte, at int) {
	dst := p.bytes[at:][:len(codes)]
	for x, code := range codes {
		dst[x] = byte(table.half[code] + fp4Offset)
	}
	for s := range len(codes) / exactDot {
		mask := uint32(0)
		for x, code := range codes[s*exactDot:][:exactDot] {
			mask |= table.nonzero[code] << x
		}
		p.masks[at/exactDot+s] = int32(mask)
	}
}

// fp4Offset makes twice the values of E2M1, from -12 to 12, unsigned.
const fp4Offset = 12

// ordered returns n codes of a row from element k on, a multiple of 64, in the order of the kernel. It
// uses the buffer where that is not K order.
func (u fastUnit) ordered(buffer *[panelCols]byte, row []byte, k, n, width int) []byte {
	if u.steps == 1 {
		return row[k*width:][:n*width]
	}
	for i, place := range u.places[:n] { // codes of one byte
		buffer[i] = row[k+place]
	}
	return buffer[:n]
}

// packPanel packs cols rows of B as the columns of a panel. It leaves the other columns as they
// are, since their results are not used.
func (p *packed) packPanel(u fastUnit, m Matrix, first, cols int) {
	p.resize(u, m.K, panelCols)
	p.special = 0
	for j := range cols {
		if u.kind == exactDots {
			p.packDotsColumn(codeTables[u.B], m.row(u.B, first+j), j)
		}
		if p.packScales(u, m, first+j, func(g, block, blocks int) int { return (g*blocks+block)*panelCols + j }) {
			p.special |= 1 << j
		}
	}
	if u.kind == exactDots {
		return
	}
	const together = panelCols // elements of rows of B that are transposed together
	for k := 0; k < m.K; k += together {
		p.packColumns(u, m, first, cols, k, min(together, m.K-k))
	}
}

// packColumns packs n elements, from k on, of cols rows of B as columns.
func (p *packed) packColumns(u fastUnit, m Matrix, first, cols, k, n int) {
	var values lanes[float32]
	var exps lanes[int16]
	var buffer [panelCols]byte
	for j := range cols {
		if u.unpack(u.B, values[:n], exps[:n], u.ordered(&buffer, m.row(u.B, first+j), k, n, u.B.Bytes)) {
			p.special |= 1 << j
		}
		for x := range n {
			p.values[(k+x)*panelCols+j] = values[x]
		}
		if u.aligns() {
			for x := range n {
				p.exps[(k+x)*panelCols+j] = exps[x]
			}
		}
	}
}

// packDotsColumn packs a row of B as column j for exact dot products.
func (p *packed) packDotsColumn(table *codeTable, codes []byte, j int) {
	for s := range len(codes) / exactDot {
		mask, sum := uint32(0), int32(0)
		for word := range exactDot / 4 {
			four := codes[s*exactDot+4*word:][:4]
			var w uint32
			for x, code := range four {
				h := table.half[code]
				sum += int32(h)
				mask |= table.nonzero[code] << (4*word + x)
				w |= uint32(uint8(h)) << (8 * x)
			}
			binary.LittleEndian.PutUint32(p.bytes[((s*exactDot/4+word)*panelCols+j)*4:], w)
		}
		p.masks[s*panelCols+j], p.sums[s*panelCols+j] = int32(mask), fp4Offset*sum
	}
}

// packScales stores the scales of a row of m. at returns the place of a block of a step, of which
// a step has the given number. A zero scale clears the mask of its elements, as if they were zero.
// packScales reports whether a scale is NaN. Without scales, resize has set their exponents.
func (p *packed) packScales(u fastUnit, m Matrix, row int, at func(g, block, blocks int) int) (special bool) {
	if u.Scale == nil {
		return false
	}
	perRow, blocks := u.Scales(m.K), u.step/u.block
	for g := range m.K / u.step {
		for block := range blocks {
			v, e, isNaN := u.scaleOf(m.Scales[row*perRow+(g*u.step+block*u.block)/u.Block])
			i := at(g, block, blocks)
			p.scaleE[i] = e
			if u.kind == exactDots {
				p.scales[i] = v
				if v == 0 {
					p.masks[i] = 0
				}
			}
			special = special || isNaN
		}
	}
	return special
}

// resize sizes the buffers for rows of n elements.
func (p *packed) resize(u fastUnit, n, rows int) {
	if u.kind == exactDots {
		p.bytes = resized(p.bytes, n*rows)
		p.masks = resized(p.masks, n/exactDot*rows)
		p.sums = resized(p.sums, n/exactDot*rows)
	} else {
		p.values = resized(p.values, n*rows)
		p.exps = resized(p.exps, n*rows)
	}
	if u.kind == exactDots {
		p.scales = resized(p.scales, n/u.block*rows)
	}
	p.scaleE = resized(p.scaleE, n/u.block*rows)
	clear(p.scaleE)
}

func resized[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// scaleOf returns a scale as a value and an exponent. special is true for NaN.
func (u *Unit) scaleOf(code byte) (v float64, exp int32, special bool) {
	n := u.Scale.number(uint64(code))
	if n.kind != finite {
		return 1, 0, true
	}
	return math.Ldexp(float64(n.sig), n.exp-n.frac), int32(n.exp), false
}
