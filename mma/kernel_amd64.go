//go:build !purego

package mma

import "math"

// kernels are the kernels of this architecture, fastest first.
var kernels = []kernel{
	{group13Needs, sumsRZ13, runRZ13AVX512},
	{group23Needs, sumsRZ23, runRZ23AVX512},
	{groupDotsNeeds, exactDots, runDotsAVX512},
	{groupExactNeeds, exactSums, runExactSumsAVX512},
	{groupFloorNeeds, floorSums, runFloorSumsAVX512},
	{group13AVX2Needs, sumsRZ13, runRZ13AVX2},
	{group23AVX2Needs, sumsRZ23, runRZ23AVX2},
	{groupDotsAVX2Needs, exactDots, runDotsAVX2},
	{groupChainAVX2Needs, chains, runChainsAVX2},
	{groupTreeAVX2Needs, trees, runTreesAVX2},
	{alignedSumsAVX2Needs, floorSums, runFloorSumsAVX2},
}

func runRZ13AVX512(p *product, rows, g int) { p.runRZ13(rows, g, group13) }
func runRZ13AVX2(p *product, rows, g int)   { p.runRZ13(rows, g, group13AVX2) }
func runRZ23AVX512(p *product, rows, g int) { p.runRZ23(rows, g, group23) }
func runRZ23AVX2(p *product, rows, g int)   { p.runRZ23(rows, g, group23AVX2) }

// dotsArgs are the operands of groupDots and groupDotsAVX2. internal/asm knows its fields.
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

func runChainsAVX2(p *product, rows, g int) {
	n := p.unit.step
	groupChainAVX2(rows, n, &p.left.values[g*n*rows], &p.right.values[g*n*panelCols], &p.c[0])
}

func runTreesAVX2(p *product, rows, g int) {
	n := p.unit.step
	groupTreeAVX2(rows, n, &p.left.values[g*n*rows], &p.right.values[g*n*panelCols], &p.c[0])
}

func runExactSumsAVX512(p *product, rows, g int) {
	n := p.unit.step
	groupExact(rows, n, &p.left.values[g*n*rows], &p.right.values[g*n*panelCols], &p.c[0], &p.bad[0])
}

func runFloorSumsAVX512(p *product, rows, g int) { p.floorSums(rows, g, sumsAVX2, floorPartsAVX512) }
func runFloorSumsAVX2(p *product, rows, g int)   { p.floorSums(rows, g, sumsAVX2, floorParts) }

func sumsAVX2(p *product, to *partialSums, from, rows, g int) {
	n := p.unit.step
	l, r, at := &p.left, &p.right, (g*p.rows+from)*n
	alignedSumsAVX2(rows, n, &l.values[at], &l.exps[at], &r.values[g*n*panelCols], &r.exps[g*n*panelCols], &to.sums[0], &to.exps[0])
}

// floorArgs are the operands of groupFloor.
type floorArgs struct {
	sums0, exps0, sums1, exps1 *int32
	scaleA, scaleB             *int32
	c                          *float32
	bad                        *uint64
}

func floorPartsAVX512(p *product, from, rows, g int) {
	dropped := cdna3Dropped
	if p.unit.steps == 1 {
		dropped = math.MaxInt32 // none
	}
	first, second := &p.parts[0], &p.parts[1]
	groupFloor(rows, dropped, &floorArgs{
		&first.sums[0], &first.exps[0], &second.sums[0], &second.exps[0],
		&p.left.scaleE[g*p.rows+from], &p.right.scaleE[g*panelCols], &p.c[from*panelCols], &p.bad[from],
	})
}
