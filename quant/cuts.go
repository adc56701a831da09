package quant

import (
	"math"
	"sync"
)

// A cutRow has four cuts under a scale, each repeated in 16 words, that AVX2 kernels compare the bits of BF16 with:
// the first magnitude above 1.25 times the scale and the first at or above 1.75 times it, both less a binade, the
// last one at or below 0.25 times it and the last one below 0.75 times it.
type cutRow [nibbleCuts][8]uint32

// globalCuts are the constants of a fused kernel that compares with cuts, under E4M3 scales. Rows begin at a multiple of 64 bytes.
type globalCuts struct {
	globalConstants
	_    [3]uint32
	rows [128]cutRow // by the code of the scale
}

// newGlobalCuts returns the constants for a global scale. Where its products with scales, or their
// reciprocals, are not normal numbers, the kernel supports no block. Under the scale 0, magnitudes from
// 2^-124 on become the largest code; the kernel supports no others but zero.
func newGlobalCuts(c globalConstants) *globalCuts {
	g := &globalCuts{globalConstants: c}
	if !c.hasNormalProducts() {
		g.infinity = 0
		return g
	}
	const twice, binade = 1<<16 | 1, 1 << 7
	var rows [scaleKinds][nibbleCuts]uint32
	for i := range rows {
		cuts := cutsUnder(c.significand(i))
		rows[i] = [nibbleCuts]uint32{cuts[1] - binade, cuts[3] - binade, cuts[0] - 2*binade - 1, cuts[2] - binade - 1}
	}
	global := int(math.Float32bits(c.decode)>>mantissaBits) - exponentBias
	for code, scale := range scaleSignificands() {
		if code > 0 {
			for i, cut := range rows[scale.kind] {
				pair := (cut + uint32((scale.exponent+global)*binade)) * twice
				g.rows[code][i] = [8]uint32{pair, pair, pair, pair, pair, pair, pair, pair}
			}
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
