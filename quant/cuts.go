package quant

import (
	"math"
	"sync"
)

// A cutRow has four cuts under a scale, as bits of BF16, that AVX2 kernels compare elements of E2M1 with:
// the first magnitude above 1.25 times the scale and the first at or above 1.75 times it, both less a binade, the
// last one at or below 0.25 times it and the last one below 0.75 times it.
type cutRow [nibbleCuts]uint16

// newCutRow returns the row of a scale whose exponent is that of the cuts plus exponent.
func newCutRow(cuts [nibbleCuts]uint32, exponent int) cutRow {
	const binade = 1 << 7
	at := func(cut uint32, binades, less int) uint16 { return uint16(int(cut) + (exponent+binades)*binade - less) }
	return cutRow{at(cuts[1], -1, 0), at(cuts[3], -1, 0), at(cuts[0], -2, 1), at(cuts[2], -1, 1)}
}

// globalCuts are the constants of a fused kernel that compares with cuts, under E4M3 scales.
type globalCuts struct {
	globalConstants
	rows [128]cutRow // by the code of the scale
}

// newGlobalCuts returns the constants for a global scale. Where its products with scales, or their
// reciprocals, are not normal numbers, the kernel supports no block. Under the scale 0, magnitudes from
// 2^-124 on become the largest code; the kernel supports no others but zero.
func newGlobalCuts(c globalConstants) globalCuts {
	g := globalCuts{globalConstants: c}
	if !c.hasNormalProducts() {
		g.infinity = 0
		return g
	}
	var cuts [scaleKinds][nibbleCuts]uint32
	for i := range cuts {
		cuts[i] = cutsUnder(c.significand(i))
	}
	global := int(math.Float32bits(c.decode)>>mantissaBits) - exponentBias
	for code, scale := range scaleSignificands() {
		if code > 0 {
			g.rows[code] = newCutRow(cuts[scale.kind], scale.exponent+global)
		}
	}
	return g
}

// scaleSignificands returns which significand, and the exponent, each code of an E4M3 scale has.
var scaleSignificands = sync.OnceValue(func() (all [128]struct{ kind, exponent int }) {
	for code := range scaleFormat.MaxCode() {
		bits := math.Float32bits(scaleFormat.Decode(code + 1))
		all[code+1].kind = int(bits >> (mantissaBits - scaleFormat.Mantissa) % scaleKinds)
		all[code+1].exponent = int(bits>>mantissaBits) - exponentBias
	}
	return all
})
