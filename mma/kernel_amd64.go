//go:build !purego

package mma

import "github.com/microscale-go/microscale/internal/cpu"

// kernels are the kernels of this architecture, fastest first.
var kernels = []kernel{
	{cpu.AVX512, sumsRZ13, runRZ13AVX512},
	{cpu.AVX512, sumsRZ23, runRZ23AVX512},
	{cpu.AVX512, exactDots, runDotsAVX512},
	{cpu.AVX2, sumsRZ13, runRZ13AVX2},
	{cpu.AVX2, sumsRZ23, runRZ23AVX2},
	{cpu.AVX2, exactDots, runDotsAVX2},
}

func runRZ13AVX512(p *product, rows, g int) { p.runRZ13(rows, g, group13) }
func runRZ13AVX2(p *product, rows, g int)   { p.runRZ13(rows, g, group13AVX2) }

func (p *product) runRZ13(rows, g int, add func(rows, n int, a *float32, ea *int16, b *float32, eb *int16, c *float32, bad *uint64)) {
	n := p.unit.step
	l, r := &p.left, &p.right
	add(rows, n, &l.values[g*n*rows], &l.exps[g*n*rows], &r.values[g*n*panelCols], &r.exps[g*n*panelCols], &p.c[0], &p.bad[0])
}

func runRZ23AVX512(p *product, rows, g int) { p.runRZ23(rows, g, group23) }
func runRZ23AVX2(p *product, rows, g int)   { p.runRZ23(rows, g, group23AVX2) }

func (p *product) runRZ23(rows, g int, add func(rows, n, one int, a *float32, ea *int16, sa *int32, b *float32, eb *int16, sb *int32, c *float32, bad *uint64)) {
	const bias = 127
	n := p.unit.step
	l, r := &p.left, &p.right
	add(rows, n, bias+p.unit.fraction, &l.values[g*n*rows], &l.exps[g*n*rows], &l.scaleE[g*rows], &r.values[g*n*panelCols], &r.exps[g*n*panelCols], &r.scaleE[g*panelCols], &p.c[0], &p.bad[0])
}

// dotsArgs are the operands of groupDots and groupDotsAVX2.
type dotsArgs struct {
	a       *byte
	masksA  *int32
	scalesA *float64
	expsA   *int32
	b       *byte
	sums    *int32
	masksB  *int32
	scalesB *float64
	expsB   *int32
	c       *float32
	bad     *uint64
}

func runDotsAVX512(p *product, rows, g int) { p.runDots(rows, g, groupDots) }
func runDotsAVX2(p *product, rows, g int)   { p.runDots(rows, g, groupDotsAVX2) }

func (p *product) runDots(rows, g int, add func(rows int, x *dotsArgs)) {
	const group, blocks = maxGroup, maxGroup / exactDot
	l, r := &p.left, &p.right
	at := g * blocks * panelCols
	add(rows, &dotsArgs{
		&l.bytes[g*rows*group], &l.masks[g*rows*blocks], &l.scales[g*rows*blocks], &l.scaleE[g*rows*blocks],
		&r.bytes[g*group*panelCols], &r.sums[at], &r.masks[at], &r.scales[at], &r.scaleE[at], &p.c[0], &p.bad[0],
	})
}
