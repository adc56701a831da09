package quant

import (
	"math"
	"sync"

	"github.com/microscale-go/microscale/format"
)

// Fused kernels look codes of E2M1 up by the exponent and the mantissa of a BF16 element x. Code i
// begins at a threshold, the value halfway between those of codes i-1 and i, times the scale of the
// block. The significands of the thresholds are 1, 1.25, 1.5 and 1.75, so that threshold × scale has
// one of four significands. Each has a cut: the first mantissa of x above it in a binade. A tie goes to
// the even code: significands 1.5 and 1.75 begin even codes, and their cut is the first mantissa at or
// above them.
//
// The class of a mantissa is the last cut at or below it, s + 4·w: significand 1 + s/4, and w = 1 if
// the cut is in the next binade above that of the scale. The exponent of x, less nibbleBelow less than
// that of the scale, is that of its binade: at least 0, at most nibbleBinades-1. Binade 0 is below all
// thresholds, the last one above all. Both give the code, for all scales. Only the classes depend
// on the significand of the scale, of which a tensor has 8: E4M3 has 3 bits.

const (
	nibbleBelow   = 3 // binades from the first to that of the scale
	nibbleBinades = 8
	nibbleCuts    = 4 // in a binade
	scaleKinds    = 8 // significands of E4M3
	zeroScale     = scaleKinds
	firstOfZero   = 2 * nibbleCuts // of the classes under the scale 0
)

// A classTable has the class of each mantissa of BF16: classTable[mantissa] = nibbleBinades·class.
type classTable [128]byte

// A codeTable has the code of each class and binade: codeTable[nibbleBinades·class + binade] = code.
type codeTable [128]byte

// exponentNibbles are the constants of a fused kernel that looks codes up, under E8M0 scales. Tables
// begin at a multiple of 64 bytes.
type exponentNibbles struct {
	exponentConstants
	below   uint32 // nibbleBelow
	codes   codeTable
	classes classTable
}

// globalNibbles are the constants of a fused kernel under E4M3 scales.
type globalNibbles struct {
	globalConstants
	below      uint32
	offsets    uint32 // mask of bytes from the first table of classes, in the bits of a scale shifted by 13
	zeroOffset uint32 // those of the scale 0
	codes      codeTable
	classes    [scaleKinds + 1]classTable // by the significand of the scale
}

func newExponentNibbles(c exponentConstants) exponentNibbles {
	t := nibbleTables()
	return exponentNibbles{c, nibbleBelow, t.codes, t.one}
}

// newGlobalNibbles returns the constants for a global scale. Where its products with scales, or their
// reciprocals, are not normal numbers, the kernel supports no block.
func newGlobalNibbles(c globalConstants) globalNibbles {
	t := nibbleTables()
	n := globalNibbles{
		globalConstants: c, below: nibbleBelow,
		offsets: (scaleKinds - 1) * uint32(len(classTable{})), zeroOffset: zeroScale * uint32(len(classTable{})),
		codes: t.codes,
	}
	if !c.hasNormalProducts() {
		n.infinity = 0
		return n
	}
	for i := range scaleKinds {
		n.classes[i].setClasses(c.significand(i))
	}
	n.classes[zeroScale] = t.zero
	return n
}

// hasNormalProducts reports whether the products of the global scale with scales, and their
// reciprocals, are normal numbers.
func (c *globalConstants) hasNormalProducts() bool {
	const minProduct, maxProduct = 0x1p-123, 0x1p126
	return scaleFormat.Smallest()*c.decode >= minProduct && scaleFormat.Max()*c.decode <= maxProduct
}

// significand returns the global scale, less its exponent, times the significand i of a scale.
func (c *globalConstants) significand(i int) float32 {
	global := math.Float32frombits(math.Float32bits(c.decode)&mantissaMask | exponentBias<<mantissaBits)
	return float32(1+float32(i)/scaleKinds) * global
}

// cutsUnder returns the cuts under a scale, as bits of BF16: the first magnitudes above 1 and 1.25 times the
// scale, and the first ones at or above 1.5 and 1.75 times it, where ties are rounded up.
func cutsUnder(scale float32) (cuts [nibbleCuts]uint32) {
	reciprocal := 1 / scale
	for s := range cuts {
		threshold := 1 + float32(s)/nibbleCuts
		cut := math.Float32bits(threshold*scale)>>16 - 1
		for {
			y := float32(math.Float32frombits(cut<<16) * reciprocal)
			if y > threshold || y == threshold && s >= nibbleCuts/2 {
				break
			}
			cut++
		}
		cuts[s] = cut
	}
	return cuts
}

// setClasses sets the classes of mantissas under a scale.
func (t *classTable) setClasses(scale float32) {
	exponent := int(math.Float32bits(scale) >> mantissaBits)
	var above, mantissas [nibbleCuts]int // of each cut: binades above that of the scale, and its mantissa
	for s, cut := range cutsUnder(scale) {
		above[s], mantissas[s] = int(cut>>7)-exponent, int(cut&0x7f)
	}
	// Cuts of the binade above have the lower mantissas. Before the first one, the last cut of the binade
	// before is the last.
	last := nibbleCuts - 1
	for above[last] > 0 && last > 0 {
		last--
	}
	class, from := last+nibbleCuts*(above[last]+1), 0
	fill := func(to int) { copy(t[from:to], classRuns[class][:]) }
	for w := 1; w >= 0; w-- {
		for s, mantissa := range mantissas {
			if above[s] == w {
				fill(mantissa)
				class, from = s+nibbleCuts*w, mantissa
			}
		}
	}
	fill(len(t))
}

// classRuns have the same class for all mantissas.
var classRuns = func() (runs [3 * nibbleCuts]classTable) {
	for class := range runs {
		for m := range runs[class] {
			runs[class][m] = byte(class * nibbleBinades)
		}
	}
	return runs
}()

// nibbleTables returns the tables that do not depend on a global scale.
var nibbleTables = sync.OnceValue(func() (t struct {
	codes     codeTable
	one, zero classTable // under the scales 1 and 0
}) {
	element := format.E2M1
	for code := uint32(1); code <= element.MaxCode(); code++ {
		threshold := (element.Decode(code-1) + element.Decode(code)) / 2
		significand, exponent := math.Frexp(float64(threshold))
		first := nibbleCuts*(exponent-1+nibbleBelow) + int((2*significand-1)*nibbleCuts)
		for class := range firstOfZero {
			for binade := range nibbleBinades {
				if nibbleCuts*(binade-class/nibbleCuts)+class%nibbleCuts >= first {
					t.codes[class*nibbleBinades+binade] = byte(code)
				}
			}
		}
	}
	t.one.setClasses(1)

	// The reciprocal of the scale 0 is the largest float32. Subnormal elements have binade 0, those of
	// the first normal binade 1. All others saturate.
	encode := func(bits int) byte {
		return byte(element.Encode(min(math.Float32frombits(uint32(bits)<<16)*maxFloat32, element.Max())))
	}
	class := firstOfZero - 1
	for m := range t.zero {
		codes := [2]byte{encode(m), encode(len(t.zero) + m)}
		if row := t.codes[class*nibbleBinades:]; m == 0 || codes != [2]byte(row) {
			class++
			row = t.codes[class*nibbleBinades:][:nibbleBinades]
			for i := range row {
				row[i] = byte(element.MaxCode())
			}
			copy(row, codes[:])
		}
		t.zero[m] = byte(class * nibbleBinades)
	}
	return t
})
