//go:build !purego

package mma

// kernels are the kernels of this architecture, fastest first.
var kernels = []kernel{
	{group13NEONNeeds, sumsRZ13, runRZ13NEON},
	{group23NEONNeeds, sumsRZ23, runRZ23NEON},
	{groupChainNEONNeeds, chains, runChainsNEON},
}

func runRZ13NEON(p *product, rows, g int) { p.runRZ13(rows, g, group13NEON) }
func runRZ23NEON(p *product, rows, g int) { p.runRZ23(rows, g, group23NEON) }

func runChainsNEON(p *product, rows, g int) {
	n := p.unit.step
	groupChainNEON(rows, n, &p.left.values[g*n*rows], &p.right.values[g*n*panelCols], &p.c[0])
}
