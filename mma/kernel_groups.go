//go:build (amd64 || arm64) && !purego

package mma

// The operands of the kernels of fused additions.

func (p *product) runRZ13(rows, g int, add func(rows, n int, a *float32, ea *int16, b *float32, eb *int16, c *float32, bad *uint64)) {
	n := p.unit.step
	l, r := &p.left, &p.right
	add(rows, n, &l.values[g*n*rows], &l.exps[g*n*rows], &r.values[g*n*panelCols], &r.exps[g*n*panelCols], &p.c[0], &p.bad[0])
}

// groupArgs are the arguments of group23 and its twins. internal/asm knows its fields.
type groupArgs struct {
	rows, n int
	one     int // the exponent field of 2^F
	a       *float32
	ea      *int16
	sa      *int32
	b       *float32
	eb      *int16
	sb      *int32
	c       *float32
	bad     *uint64
}

func (p *product) runRZ23(rows, g int, add func(p groupArgs)) {
	const bias = 127
	n := p.unit.step
	l, r := &p.left, &p.right
	add(groupArgs{
		rows: rows, n: n, one: bias + p.unit.fraction, a: &l.values[g*n*rows], ea: &l.exps[g*n*rows], sa: &l.scaleE[g*rows],
		b: &r.values[g*n*panelCols], eb: &r.exps[g*n*panelCols], sb: &r.scaleE[g*panelCols], c: &p.c[0], bad: &p.bad[0],
	})
}
