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
	exps   []int8    // their exponents; zeroExp for zeros
	bytes  []byte    // FP4 instead: A as 2·value + 12, B as int8 2·value in words of four k
	masks  []int32   // FP4: which elements of 16 are not zero, none under a zero scale
	sums   []int32   // FP4: 12·Σ of B's bytes over 16
	scales []float64 // of each block of 16, or group
	scaleE []int32   // their exponents

	specials []bool // rows of A with NaN or Inf, scales included
	special  uint64 // such columns of a panel
}

// zeroExp stands for the exponent of a zero: with any other, it stays below those of nonzero
// products, of which the least is -28.
const zeroExp = -60

// codeTable has what packing needs of each code of a type.
type codeTable struct {
	value   [256]float32 // 0 for NaN and Inf
	exp     [256]int8    // zeroExp for zeros
	half    [256]int8    // twice the value, of E2M1
	nonzero [256]uint32  // 1 or 0
	special [256]bool    // NaN or Inf
}

// codeTables has the table of each one-byte operand type of NVIDIA's units.
var codeTables = func() map[*Type]*codeTable {
	tables := map[*Type]*codeTable{}
	for _, t := range five {
		table := new(codeTable)
		for code := range 256 {
			n := t.number(uint64(code))
			table.special[code], table.exp[code] = n.kind != finite, zeroExp
			if n.kind != finite || n.sig == 0 {
				continue
			}
			table.value[code], table.exp[code], table.nonzero[code] = float32(n.value()), int8(n.exp), 1
			if t == e2m1 {
				table.half[code] = int8(2 * n.value())
			}
		}
		tables[t] = table
	}
	return tables
}()

// holds reports whether a row has NaN or Inf.
func (t *codeTable) holds(codes []byte) bool {
	for _, c := range codes {
		if t.special[c] {
			return true
		}
	}
	return false
}

// pack packs rows of A, the rows of a tile.
func (p *packed) pack(u *Unit, k *kernel, m Matrix, first, rows int) {
	p.resize(k, m.K, rows)
	p.specials = append(p.specials[:0], make([]bool, rows)...)
	table := codeTables[u.A]
	for i := range rows {
		codes := m.row(u.A, first+i)
		for g := 0; g < len(codes); g += u.Group {
			at, group := g*rows+i*u.Group, codes[g:g+u.Group]
			if k.dots {
				p.packDots(table, group, at)
				continue
			}
			values, exps := p.values[at:][:len(group)], p.exps[at:][:len(group)]
			for x, code := range group {
				values[x], exps[x] = table.value[code], table.exp[code]
			}
		}
		bad := p.packScales(u, k, m, first+i, func(g, s, per int) int { return (g*rows+i)*per + s })
		p.specials[i] = bad || table.holds(codes)
	}
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

// packPanel packs cols rows of B as the columns of a panel, the others zero.
func (p *packed) packPanel(u *Unit, k *kernel, m Matrix, first, cols int) {
	p.resize(k, m.K, panelCols)
	p.special = 0
	table := codeTables[u.B]
	if cols < panelCols {
		p.blank()
	}
	for j := range cols {
		codes := m.row(u.B, first+j)
		if k.dots {
			p.packDotsColumn(table, codes, j)
		}
		bad := p.packScales(u, k, m, first+j, func(g, s, per int) int { return (g*per+s)*panelCols + j })
		if bad || table.holds(codes) {
			p.special |= 1 << j
		}
	}
	if k.dots {
		return
	}
	const together = 16 // rows of B whose cache lines are read together
	for from := 0; from < cols; from += together {
		n := min(together, cols-from)
		for x := range m.K {
			values, exps := p.values[x*panelCols+from:][:n], p.exps[x*panelCols+from:][:n]
			for j := range values {
				code := m.Codes[(first+from+j)*m.K+x]
				values[j], exps[j] = table.value[code], table.exp[code]
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

// packScales stores the scales of a row of m at the places that at returns for a group, a block
// of the group and the blocks of a group. A zero scale clears the mask of its elements, as if
// they were zero. It reports whether a scale is NaN.
func (p *packed) packScales(u *Unit, k *kernel, m Matrix, row int, at func(g, s, per int) int) (bad bool) {
	n, group, per := u.Scales(m.K), u.Scales(u.Group), u.Group/k.block
	for g := range m.K / u.Group {
		for s := range per {
			v, e, special := u.scaleOf(m.Scales, row*n+g*group+s*group/per)
			i := at(g, s, per)
			p.scales[i], p.scaleE[i] = v, e
			if bad = bad || special; v == 0 && k.dots {
				p.masks[i] = 0
			}
		}
	}
	return bad
}

// blank fills a panel with zeros.
func (p *packed) blank() {
	clear(p.values)
	for i := range p.exps {
		p.exps[i] = zeroExp
	}
	clear(p.bytes)
	clear(p.masks)
	clear(p.sums)
	for i := range p.scales {
		p.scales[i], p.scaleE[i] = 1, 0
	}
}

// resize makes room for rows of n elements.
func (p *packed) resize(k *kernel, n, rows int) {
	if k.dots {
		p.bytes = resized(p.bytes, n*rows)
		p.masks = resized(p.masks, n/exactDot*rows)
		p.sums = resized(p.sums, n/exactDot*rows)
	} else {
		p.values = resized(p.values, n*rows)
		p.exps = resized(p.exps, n*rows)
	}
	p.scales = resized(p.scales, n/k.block*rows)
	p.scaleE = resized(p.scaleE, n/k.block*rows)
}

func resized[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// scaleOf returns scale i as a value and an exponent: 1 and 0 without scales. special is true
// for NaN.
func (u *Unit) scaleOf(scales []byte, i int) (v float64, exp int32, special bool) {
	if u.Scale == nil {
		return 1, 0, false
	}
	n := u.Scale.number(uint64(scales[i]))
	if n.kind != finite {
		return 1, 0, true
	}
	return math.Ldexp(float64(n.sig), n.exp-n.frac), int32(n.exp), false
}
