package mma

import (
	"fmt"
	"math"
)

// A Matrix is an operand of [Unit.Mul]: Rows rows of K codes of Type.Bytes bytes each,
// little-endian, and the scales of each row in K order, u.Scales(K) for each row.
type Matrix struct {
	Rows, K       int
	Codes, Scales []byte
}

// Mul sets d[i·n+j], for every row i of a and row j of b's n rows, to the result of Dot for both
// rows and the accumulator d[i·n+j]. For NVIDIA's units it computes many dot products at a time,
// with the same results, except for FP64; [Unit.Fast] reports where.
//
// Mul returns an error for results other than f32, and for lengths that do not match. a and b may
// be the same. d must not overlap their memory.
func (u *Unit) Mul(d []float32, a, b Matrix) error { return u.MulPromoted(d, a, b, 0) }

// MulPromoted is Mul with promotion: the unit adds each interval products from an accumulator of
// zero, and the result is added to d in FP32, rounded to nearest. DeepSeek-V3 promotes every 128
// products. An interval of 0 means none. MulPromoted also returns an error for an interval that
// is not a multiple of u.K.
func (u *Unit) MulPromoted(d []float32, a, b Matrix, interval int) error {
	if err := u.checkMul(d, a, b); err != nil {
		return err
	}
	if interval < 0 || interval%u.K != 0 {
		return fmt.Errorf("product of %s: got a promotion interval of %d, want a multiple of %d", u.Model, interval, u.K)
	}
	p := product{unit: u, kernel: u.kernel(), a: a, b: b, d: d, interval: interval}
	_, isEmulated := u.rule.(emulated)
	if p.promotion = interval; isEmulated { // the IEEE addition of each group is a promotion
		p.promotion = u.Group
	}
	if p.kernel == nil || isEmulated && interval > 0 {
		p.rows()
		return nil
	}
	for first := 0; first < a.Rows; first += tileRows {
		p.tile(first, min(tileRows, a.Rows-first))
	}
	return nil
}

// Fast reports whether Mul computes many dot products at a time.
func (u *Unit) Fast() bool { return u.kernel() != nil }

func (u *Unit) checkMul(d []float32, a, b Matrix) error {
	switch {
	case u.Out != f32:
		return fmt.Errorf("product of %s %s×%s to %s: want results of f32: use Dot", u.Model, u.A, u.B, u.Out)
	case a.K != b.K || a.K%u.K != 0 || a.K < 0:
		return fmt.Errorf("product of %s: got K of %d and %d, want the same multiple of %d", u.Model, a.K, b.K, u.K)
	case a.Rows < 0 || b.Rows < 0 || len(d) != a.Rows*b.Rows:
		return fmt.Errorf("product of %s: got %d results, want %d×%d", u.Model, len(d), a.Rows, b.Rows)
	}
	for i, m := range []Matrix{a, b} {
		codes := m.Rows * m.K * []*Type{u.A, u.B}[i].Bytes
		if len(m.Codes) != codes || len(m.Scales) != m.Rows*u.Scales(m.K) {
			return fmt.Errorf("product of %s: got %d bytes of codes and %d scales of %d×%d, want %d and %d", u.Model, len(m.Codes), len(m.Scales), m.Rows, m.K, codes, m.Rows*u.Scales(m.K))
		}
	}
	return nil
}

// rows computes every result by Dot.
func (p *product) rows() {
	for i := range p.a.Rows {
		for j := range p.b.Rows {
			p.cell(i, j)
		}
	}
}

// cell computes the result of rows i and j by Dot.
func (p *product) cell(i, j int) {
	u, n := p.unit, p.unit.Scales(p.a.K)
	a, b := u.A.codes(p.a.row(u.A, i)), u.B.codes(p.b.row(u.B, j))
	scaleA, scaleB := p.a.Scales[i*n:][:n], p.b.Scales[j*n:][:n]
	c := &p.d[i*p.b.Rows+j]
	if p.interval == 0 {
		*c = math.Float32frombits(uint32(u.Dot(a, b, uint64(math.Float32bits(*c)), scaleA, scaleB)))
		return
	}
	for k := 0; k < len(a); k += p.interval {
		end := min(k+p.interval, len(a))
		from, to := u.Scales(k), u.Scales(end)
		*c += math.Float32frombits(uint32(u.Dot(a[k:end], b[k:end], 0, scaleA[from:to], scaleB[from:to])))
	}
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
	unit   *Unit
	kernel *kernel
	a, b   Matrix
	d      []float32

	interval  int       // of promotion; 0: none
	promotion int       // of the kernel's sums: interval, or the group of an emulated unit
	promoted  []float32 // sums of the results of intervals

	left, right packed
	c           []float32 // results of the tile and panel
	bad         []uint64  // for each row, the columns that Dot computes
}

// tile computes rows first to first+rows.
func (p *product) tile(first, rows int) {
	p.left.pack(p.unit, p.a, first, rows)
	p.c, p.bad = resized(p.c, rows*panelCols), resized(p.bad, rows)
	for col := 0; col < p.b.Rows; col += panelCols {
		p.panel(first, rows, col, min(panelCols, p.b.Rows-col))
	}
}

// panel computes the results of the packed rows and cols columns.
func (p *product) panel(first, rows, col, cols int) {
	p.right.packPanel(p.unit, p.b, col, cols)
	for i := range rows {
		row := p.c[i*panelCols:][:panelCols]
		clear(row[copy(row, p.d[(first+i)*p.b.Rows+col:][:cols]):])
		p.bad[i] = 0
	}
	if p.promotion > 0 {
		if p.interval == 0 {
			p.markSpecial()
		}
		p.promoted = append(p.promoted[:0], p.c...)
		clear(p.c)
	}
	n := p.unit.step()
	for g := range p.a.K / n {
		if p.promotion > 0 && g > 0 && g*n%p.promotion == 0 {
			p.promote()
		}
		p.kernel.run(p, rows, g)
	}
	if p.promotion > 0 {
		p.promote()
		copy(p.c, p.promoted)
	}
	for i := range rows {
		bad := p.bad[i] | p.right.special
		if p.left.specials[i] {
			bad = math.MaxUint64
		}
		for j := range cols {
			at := (first+i)*p.b.Rows + col + j
			if bad>>j&1 != 0 {
				p.cell(first+i, col+j)
			} else {
				p.d[at] = p.c[i*panelCols+j]
			}
		}
	}
}

// markSpecial marks accumulators that are NaN or Inf: FP32 additions keep a NaN, and the unit returns
// its own.
func (p *product) markSpecial() {
	for i, v := range p.c {
		if _, special := field(v); special {
			p.bad[i/panelCols] |= 1 << (i % panelCols)
		}
	}
}

// promote adds the results to the promoted sums, and clears them.
func (p *product) promote() {
	for i, v := range p.c {
		p.promoted[i] += v
	}
	clear(p.c)
}
