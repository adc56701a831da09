package mma

import (
	"fmt"
	"math"
	"math/bits"
)

// A Matrix is an operand of [Unit.Mul]: Rows rows of K codes of Type.Bytes bytes each,
// little-endian, and the scales of each row in K order, u.Scales(K) for each row.
type Matrix struct {
	Rows, K       int
	Codes, Scales []byte
}

// Mul sets d[i·n+j], for every row i of a and row j of b's n rows, to the result of Dot for both
// rows and the accumulator d[i·n+j]. It computes many dot products at a time, with the same results.
//
// Mul returns an error for results other than f32, and for lengths that do not match. a and b may
// be the same. d must not overlap their memory.
func (u *Unit) Mul(d []float32, a, b Matrix) error {
	if err := u.checkMul(d, a, b); err != nil {
		return err
	}
	f, _ := u.fast() // results of f32 have kernels
	p := product{unit: f, kernel: f.kernel(), a: a, b: b, d: d}
	if f.kind == floorSums {
		p.parts = newPartialSums()
	}
	for first := 0; first < a.Rows; first += tileRows {
		p.tile(first, min(tileRows, a.Rows-first))
	}
	return nil
}

// Fast reports whether Mul computes many dot products at a time.
func (u *Unit) Fast() bool {
	_, ok := u.fast()
	return ok
}

func (u *Unit) checkMul(d []float32, a, b Matrix) error {
	switch {
	case u.Out != f32:
		return fmt.Errorf("product of %s %s×%s to %s: want results of f32: use Dot", u.Model, u.A, u.B, u.Out)
	case a.K != b.K || a.K%u.K != 0 || a.K < 0:
		return fmt.Errorf("product of %s: got K of %d and %d, want the same multiple of %d", u.Model, a.K, b.K, u.K)
	case a.Rows < 0 || b.Rows < 0 || !isProduct(len(d), a.Rows, b.Rows, 1):
		return fmt.Errorf("product of %s: got %d results, want %d×%d", u.Model, len(d), a.Rows, b.Rows)
	}
	for i, m := range []Matrix{a, b} {
		width := []*Type{u.A, u.B}[i].Bytes
		if !isProduct(len(m.Codes), m.Rows, m.K, width) || len(m.Scales) != m.Rows*u.Scales(m.K) {
			return fmt.Errorf("product of %s: got %d bytes of codes and %d scales of %d×%d, want %d and %d", u.Model, len(m.Codes), len(m.Scales),
				m.Rows, m.K, m.Rows*m.K*width, m.Rows*u.Scales(m.K))
		}
	}
	return nil
}

// isProduct reports whether n is a·b·c, which may overflow, of factors that are not negative.
func isProduct(n, a, b, c int) bool {
	high, low := bits.Mul(uint(a), uint(b))
	over, product := bits.Mul(low, uint(c))
	return high == 0 && over == 0 && product == uint(n)
}

// cell computes the result of rows i and j by Dot.
func (u *Unit) cell(d []float32, a, b Matrix, i, j int) {
	n := u.Scales(a.K)
	c := &d[i*b.Rows+j]
	result := u.Dot(u.A.codes(a.row(u.A, i)), u.B.codes(b.row(u.B, j)), uint64(math.Float32bits(*c)), a.Scales[i*n:][:n], b.Scales[j*n:][:n])
	*c = math.Float32frombits(uint32(result))
}

// row returns the codes of row i, of type t.
func (m Matrix) row(t *Type, i int) []byte {
	n := m.K * t.Bytes
	return m.Codes[i*n:][:n]
}

// codes reads little-endian codes.
func (t *Type) codes(src []byte) []uint64 {
	codes := make([]uint64, len(src)/t.Bytes)
	for i := range codes {
		for b, v := range src[i*t.Bytes:][:t.Bytes] {
			codes[i] |= uint64(v) << (8 * b)
		}
	}
	return codes
}

// The tiles of a product: rows of A that are packed together, and columns of a panel of B.
const (
	tileRows  = 256
	panelCols = 64
)

// A product is one call of Mul by a kernel.
type product struct {
	unit   fastUnit
	kernel *kernel
	a, b   Matrix
	d      []float32

	left, right packed
	c           []float32 // results of the tile and panel
	sums        []float32 // for a unit that adds halves: C and the results of groups
	bad         []uint64  // for each row, the columns that the kernel could not compute

	rows  int             // of the tile
	parts *[2]partialSums // of the steps of a group, for floorSums
}

// tile computes rows first to first+rows.
func (p *product) tile(first, rows int) {
	p.left.pack(p.unit, p.a, first, rows)
	p.c, p.bad = resized(p.c, rows*panelCols), resized(p.bad, rows)
	p.rows = rows
	for col := 0; col < p.b.Rows; col += panelCols {
		p.panel(first, rows, col, min(panelCols, p.b.Rows-col))
	}
}

// panel computes the results of the packed rows and cols columns.
func (p *product) panel(first, rows, col, cols int) {
	p.right.packPanel(p.unit, p.b, col, cols)
	p.load(first, rows, col, cols)
	if p.unit.halves {
		p.addHalves(rows)
	} else {
		for g := range p.a.K / p.unit.step {
			p.kernel.run(p, rows, g)
			if p.unit.kind == exactSums || p.unit.kind == floorSums {
				p.repair(first, rows, col, cols, g)
			}
		}
	}
	p.store(first, rows, col, cols)
}

// load sets c to the accumulators, and clears bad.
func (p *product) load(first, rows, col, cols int) {
	for i := range rows {
		row := p.c[i*panelCols:][:panelCols]
		clear(row[copy(row, p.d[(first+i)*p.b.Rows+col:][:cols]):])
		p.bad[i] = 0
	}
}

// repair adds, by the rule of the unit, the group that ended with step g to the accumulators that the
// kernel marked, and clears the marks.
func (p *product) repair(first, rows, col, cols, g int) {
	u := p.unit
	k := g / u.steps * u.Group
	for i, bad := range p.bad[:rows] {
		if bad == 0 {
			continue
		}
		p.bad[i] = 0
		if p.left.specials[i] {
			continue
		}
		for bad &^= p.right.special; bad != 0; bad &= bad - 1 {
			if j := bits.TrailingZeros64(bad); j < cols {
				c := &p.c[i*panelCols+j]
				x := group{unit: u.Unit, first: k}
				x.a, x.scaleA = u.part(u.A, p.a, first+i, k)
				x.b, x.scaleB = u.part(u.B, p.b, col+j, k)
				*c = math.Float32frombits(uint32(u.rule.add(&x, uint64(math.Float32bits(*c)), nil)))
			}
		}
	}
}

// part returns the codes and scales of the group from element k on of a row.
func (u *Unit) part(t *Type, m Matrix, row, k int) (codes []uint64, scales []byte) {
	codes = t.codes(m.row(t, row)[k*t.Bytes:][:u.Group*t.Bytes])
	return codes, m.Scales[row*u.Scales(m.K)+u.Scales(k):][:u.Scales(u.Group)]
}

// store writes the results to d. Dot computes those that the kernel does not, and NaN, of which units
// have their own.
func (p *product) store(first, rows, col, cols int) {
	for i := range rows {
		bad := p.bad[i] | p.right.special
		if p.left.specials[i] {
			bad = math.MaxUint64
		}
		for j := range cols {
			if v := p.c[i*panelCols+j]; bad>>j&1 != 0 || v != v {
				p.unit.cell(p.d, p.a, p.b, first+i, col+j)
			} else {
				p.d[(first+i)*p.b.Rows+col+j] = v
			}
		}
	}
}

// addHalves computes groups of two steps from an accumulator of zero, and adds each result to C in
// FP32.
func (p *product) addHalves(rows int) {
	p.sums = append(p.sums[:0], p.c...)
	clear(p.c)
	for g := range p.a.K / p.unit.step {
		p.kernel.run(p, rows, g)
		if g%2 == 1 { // the second half of a group
			sums, c := p.sums, p.c[:len(p.sums)] // local, so that the loop has no bounds checks
			for i, v := range c {
				sums[i] += v
			}
			clear(c)
		}
	}
	copy(p.c, p.sums)
}
