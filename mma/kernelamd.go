package mma

import "math"

// runChains is the kernel of FP32 units: fused multiply-adds in K order.
func runChains(p *product, rows, g int) {
	n := p.unit.step
	b := p.right.values[g*n*panelCols:]
	for i := range rows {
		c := p.c[i*panelCols:][:panelCols]
		for k, x := range p.left.values[(g*rows+i)*n:][:n] {
			for j, y := range b[k*panelCols:][:panelCols] {
				c[j] = fma32(float64(x), float64(y), float64(c[j]))
			}
		}
	}
}

// runTrees is the kernel of CDNA2: the tree of 2 or 4 products, with subnormal results flushed.
func runTrees(p *product, rows, g int) {
	n := p.unit.step
	b := p.right.values[g*n*panelCols:]
	for i := range rows {
		a, c := p.left.values[(g*rows+i)*n:][:n], p.c[i*panelCols:][:panelCols]
		for j, v := range c {
			var sums [2]float32
			for k := 0; k < n; k += 2 {
				x, y := float32(a[k]*b[k*panelCols+j]), float32(a[k+1]*b[(k+1)*panelCols+j])
				sums[k/2] = flushed(flushed(x) + flushed(y))
			}
			sum := flushed(sums[0] + sums[1]) // sums[1] of 2 products can change the sign of a zero only
			c[j] = flushed(flushed(v) + 0 + sum)
		}
	}
}

// runExactSums is the kernel of CDNA1: products and C, which float64 holds exactly, added in float64.
// It marks inexact sums.
func runExactSums(p *product, rows, g int) {
	n := p.unit.step
	b := p.right.values[g*n*panelCols:]
	for i := range rows {
		a, c := p.left.values[(g*rows+i)*n:][:n], p.c[i*panelCols:][:panelCols]
		for j, v := range c {
			sum, inexact := float64(v), false
			for k, x := range a {
				term := float64(x) * float64(b[k*panelCols+j])
				next := sum + term
				added := next - sum
				inexact = inexact || (sum-(next-added))+(term-added) != 0
				sum = next
			}
			if inexact { // or Inf
				p.bad[i] |= 1 << j
			} else {
				c[j] = float32(sum)
			}
		}
	}
}

// partialSums has the sums of the products of one step, for floorRows rows and the columns of a panel.
type partialSums struct {
	sums [floorRows * panelCols]int32 // in units of 2^(largest-24)
	exps [floorRows * panelCols]int32 // largest exponents, below noProductExp if all products are zero
}

// floorRows is the number of rows whose partial sums stay in the first-level cache.
const floorRows = 16

// newPartialSums returns sums without products.
func newPartialSums() *[2]partialSums {
	var parts [2]partialSums
	for i := range parts {
		for j := range parts[i].exps {
			parts[i].exps[j] = 2 * zeroExp
		}
	}
	return &parts
}

// Bounds of the exponents of floorSums. Within, products are below 2^128, 2^(24-E) is a normal float32,
// and FP32 holds the products that are not cut to zero.
const (
	minFloorExp = -100
	maxFloorExp = 126
)

// runFloorSums is the kernel of CDNA3 and CDNA4.
func runFloorSums(p *product, rows, g int) { p.floorSums(rows, g, alignedSums, floorParts) }

// floorSums adds a group, that of step g if this is its last one: for some rows at a time, the sums of
// its steps, then these and C. A group without a second step has no products there.
func (p *product) floorSums(rows, g int, add func(p *product, to *partialSums, from, rows, g int),
	join func(p *product, from, rows, g int)) {
	steps := p.unit.steps
	if g%steps != steps-1 {
		return
	}
	for from := 0; from < rows; from += floorRows {
		n := min(floorRows, rows-from)
		for step := range steps {
			add(p, &p.parts[step], from, n, g-steps+1+step)
		}
		join(p, from, n, g)
	}
}

// alignedSums adds the products of a step, cut toward zero to multiples of 2^(largest-24). They are
// below 2^26, and at most 16.
func alignedSums(p *product, to *partialSums, from, rows, g int) {
	n := p.unit.step
	b, eb := p.right.values[g*n*panelCols:], p.right.exps[g*n*panelCols:]
	for i := range rows {
		at := (g*p.rows + from + i) * n
		largest := largestExponents(p.left.exps[at:][:n], eb)
		var scales lanes[float32]
		var sums lanes[int32]
		exps := to.exps[i*panelCols:][:panelCols]
		for j, e := range largest {
			exps[j] = int32(e)
			scales[j] = pow2(cdna3Fraction - int(min(max(e, minFloorExp), maxFloorExp)))
		}
		addProducts(&sums, &scales, p.left.values[at:][:n], b)
		copy(to.sums[i*panelCols:], sums[:])
	}
}

// floorParts adds the sums of both steps and C. It marks exponents beyond its bounds.
func floorParts(p *product, from, rows, g int) {
	scaleB := p.right.scaleE[g*panelCols:][:panelCols]
	for i := range rows {
		scaleA := p.left.scaleE[g*p.rows+from+i]
		for j := range panelCols {
			at := i*panelCols + j
			c := &p.c[from*panelCols+at]
			e0, e1 := int(p.parts[0].exps[at]), int(p.parts[1].exps[at])
			largest := max(e0, e1)
			scaled := largest + int(scaleA+scaleB[j])
			ec, _ := exponentOf(*c) // beyond maxFloorExp for NaN and Inf; no subnormal loses a bit by one less
			e := max(scaled, ec)
			if e > maxFloorExp || noProductExp < scaled && scaled < minFloorExp {
				p.bad[from+i] |= 1 << j
				continue
			}
			sum := floorScaled(float64(p.parts[0].sums[at]), e0-largest) + floorScaled(float64(p.parts[1].sums[at]), e1-largest)
			total := floorScaled(sum, scaled-e+cdna3Sum-cdna3Fraction)
			if p.unit.steps == 1 || e-ec <= cdna3Dropped {
				total += floorScaled(float64(*c), cdna3Fraction-e) * (1 << (cdna3Sum - cdna3Fraction))
			}
			*c = float32(floor32(total) * pow2wide(e-cdna3Sum))
		}
	}
}

// floorScaled returns the floor of v·2^e, for |v| below 2^128 and e up to 150. Below -200, the floor is
// that of -200.
func floorScaled(v float64, e int) float64 { return math.Floor(v * pow2wide(max(e, -200))) }

// floor32 rounds v down to 32 significant bits, as cdna3Total says.
func floor32(v float64) float64 {
	const below = 1<<(52-cdna3Total) - 1
	b := math.Float64bits(v)
	if v < 0 {
		b += below
	}
	return math.Float64frombits(b &^ below)
}
