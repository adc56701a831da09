package mma

import (
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A kernel computes one step, a fused addition or a part of one, for all rows of a packed tile and
// the 64 columns of a panel. It marks results that it cannot compute in product.bad. NVIDIA's kernels
// mark NaN, Inf and exponents beyond their range, and Dot computes those results. AMD's leave the
// accumulators that they mark unchanged, and the rule of the unit adds that group.
type kernel struct {
	needs cpu.Set
	kind  kernelKind
	run   func(p *product, rows, g int)
}

// A kernelKind is the arithmetic of a kernel.
type kernelKind uint8

const (
	sumsRZ13  kernelKind = iota + 1 // FP8 units with 13 fraction bits
	sumsRZ23                        // units with 23 to 25 fraction bits, and groups of 4 to 32 products
	exactDots                       // FP4 units: exact dot products of 16 elements
	chains                          // FP32 units: fused multiply-adds
	trees                           // CDNA2
	exactSums                       // CDNA1
	floorSums                       // CDNA3 and CDNA4
)

var kindNames = [...]string{
	sumsRZ13: "FP8 units of 13 bits", sumsRZ23: "units of 23 to 25 bits", exactDots: "FP4 units",
	chains: "FP32 units", trees: "CDNA2", exactSums: "CDNA1", floorSums: "CDNA3 and CDNA4",
}

func init() {
	cpu.AddTable("mma", &kernels, func(k *kernel) (string, cpu.Set) { return kindNames[k.kind], k.needs })
}

// A fastUnit is a unit that has kernels, and what they need to know of it.
type fastUnit struct {
	*Unit
	kind     kernelKind
	step     int  // products that one run of a kernel adds
	steps    int  // of a group
	block    int  // elements that share a scale in the kernel
	fraction int  // F, the fraction bits of the alignment
	halves   bool // C is added to the result of a group: the rule emulated

	// places has, for a group of two steps, the elements of each 64 in the order in which the kernel
	// adds them. Without it, a group is one step.
	places []int
}

// fast returns u for its kernels. ok is false if it has none.
func (u *Unit) fast() (f fastUnit, ok bool) {
	if u.Out != f32 {
		return fastUnit{}, false
	}
	f = fastUnit{Unit: u, step: u.Group, steps: 1, block: u.Group}
	switch r := u.rule.(type) {
	case fusedFP4:
		f.kind, f.block, f.fraction = exactDots, exactDot, r.fraction
	case emulated:
		f.kind, f.fraction, f.halves = sumsRZ23, r.fraction, true
		f.split(firstPairs, secondPairs)
	case fused:
		f.kind, f.fraction = sumsRZ23, r.fraction
		if r.rounding == rz13 {
			f.kind = sumsRZ13
		}
	case chain:
		f.kind, f.step, f.block = chains, u.K, u.K
	case tree:
		f.kind = trees
	case exact:
		f.kind = exactSums
	case cdna3:
		f.kind, f.fraction = floorSums, cdna3Fraction
		if r.halves {
			f.split(evenProducts.index, oddProducts.index)
		}
	}
	return f, f.kind != 0
}

// aligns reports whether the kernel needs the exponents of elements.
func (u fastUnit) aligns() bool {
	return u.kind == sumsRZ13 || u.kind == sumsRZ23 || u.kind == floorSums
}

// split makes two steps of a group. The i-th products of these have the indexes first(i) and second(i)
// in the group.
func (u *fastUnit) split(first, second func(i int) int) {
	u.steps, u.step = 2, u.Group/2
	u.block = u.step
	for from := 0; from < panelCols; from += u.Group { // groups divide panelCols
		for _, index := range []func(int) int{first, second} {
			for i := range u.step {
				u.places = append(u.places, from+index(i))
			}
		}
	}
}

// genericKernels are the kernels in Go, on every machine.
var genericKernels = []kernel{
	{0, sumsRZ13, runRZ13},
	{0, sumsRZ23, runRZ23},
	{0, exactDots, runDots},
	{0, chains, runChains},
	{0, trees, runTrees},
	{0, exactSums, runExactSums},
	{0, floorSums, runFloorSums},
}

// kernel returns the fastest kernel of the unit on this machine.
func (u fastUnit) kernel() *kernel {
	for _, table := range [][]kernel{kernels, genericKernels} {
		for i := range table {
			if k := &table[i]; cpu.Uses(k.needs) && k.kind == u.kind {
				return k
			}
		}
	}
	panic("mma: no kernel in Go") // genericKernels has every kind
}

// Exponents in the kernels. The assembly has the same: see internal/asm/mma.go.
const (
	maxExp        = 80    // bounds E in runRZ23 and runDots: within, all powers of two are normal
	minExpRZ13    = -100  // bounds E in runRZ13: 2^(13-E) and its reciprocal are normal
	maxProductExp = 90    // bounds E without scales: beyond, all products are cut to zero
	noProductExp  = -1000 // below the exponents of nonzero products, and above those of zeros
)

// pow2 returns 2^e for the exponents of normal numbers.
func pow2(e int) float32 { return math.Float32frombits(uint32(127+e) << 23) }

func pow2wide(e int) float64 { return math.Float64frombits(uint64(1023+e) << 52) }

// exponentOf returns the exponent of an accumulator, -127 for zeros and subnormals. special is true
// for NaN and Inf.
func exponentOf(c float32) (e int, special bool) {
	e = int(math.Float32bits(c)>>23&0xff) - 127
	return e, e == 128
}

// A lanes has one element for each column of a panel.
type lanes[E any] [panelCols]E

// largestExponents returns the largest exponents of the products of a row and each column.
func largestExponents(ea, eb []int16) (largest lanes[int16]) {
	for j := range largest {
		largest[j] = 2 * zeroExp
	}
	for k, e := range ea {
		for j, v := range eb[k*panelCols:][:panelCols] {
			largest[j] = max(largest[j], e+v)
		}
	}
	return largest
}

// addProducts adds the products of a row and each column, times the column's scale and cut
// toward zero, to sums.
func addProducts(sums *lanes[int32], scales *lanes[float32], a, b []float32) {
	for k, x := range a {
		for j, y := range b[k*panelCols:][:panelCols] {
			sums[j] += int32(float32(x*y) * scales[j])
		}
	}
}

// runRZ13 is the kernel of FP8 units with 13 fraction bits: products times 2^(13-E) cut to
// integers, whose sums stay below 2^21.
func runRZ13(p *product, rows, g int) {
	const fraction = 13
	n := p.unit.step
	b, eb := p.right.values[g*n*panelCols:], p.right.exps[g*n*panelCols:]
	for i := range rows {
		at := (g*rows + i) * n
		c := p.c[i*panelCols:][:panelCols]
		largest := largestExponents(p.left.exps[at:][:n], eb)
		var scales lanes[float32]
		var sums lanes[int32]
		for j, v := range c {
			e, bad := exponentOf(v)
			if largest[j] >= noProductExp {
				e = max(e, int(largest[j]))
			}
			if bad || e < minExpRZ13 && v != 0 {
				p.bad[i] |= 1 << j
				v, e = 0, 0
			}
			scales[j] = pow2(fraction - max(e, minExpRZ13))
			sums[j] = int32(v * scales[j])
		}
		addProducts(&sums, &scales, p.left.values[at:][:n], b)
		for j, sum := range sums {
			c[j] = math.Float32frombits(math.Float32bits(float32(sum)/scales[j]) &^ (1<<(23-fraction) - 1))
		}
	}
}

// runRZ23 is the kernel of units with 23 to 25 fraction bits, with or without scales: terms below
// 2^27, and sums of half the products, at most 16, and of both halves, that int32 and float64 hold
// exactly. Products of 16-bit operands and TF32 have at most 22 bits. Products below 2^-126 are not
// exact, but E is -80 or more, so that they are cut to zero.
func runRZ23(p *product, rows, g int) {
	n, fraction := p.unit.step, p.unit.fraction
	b, eb := p.right.values[g*n*panelCols:], p.right.exps[g*n*panelCols:]
	for i := range rows {
		at := (g*rows + i) * n
		a, c := p.left.values[at:][:n], p.c[i*panelCols:][:panelCols]
		largest := largestExponents(p.left.exps[at:][:n], eb)
		scaleA, scaleB := int(p.left.scaleE[g*rows+i]), p.right.scaleE[g*panelCols:][:panelCols]
		var exps lanes[int]
		var scales lanes[float32]
		for j, v := range c {
			e, _ := exponentOf(v) // of NaN and Inf, beyond maxExp
			scale := scaleA + int(scaleB[j])
			zeros := largest[j] < noProductExp
			switch {
			case zeros && v == 0:
				e = 0
			case !zeros:
				e = max(e, int(largest[j])+scale)
			}
			if e < -maxExp || e > maxExp {
				p.bad[i] |= 1 << j
				e = 0
			}
			exps[j], scales[j] = e, pow2(fraction-min(max(e-scale, -maxExp), maxProductExp))
		}
		var first, second lanes[int32]
		addProducts(&first, &scales, a[:n/2], b)
		addProducts(&second, &scales, a[n/2:], b[n/2*panelCols:])
		for j, v := range c {
			total := float64(first[j]) + float64(second[j])
			total += math.Trunc(float64(v) * pow2wide(fraction-exps[j]))
			c[j] = towardZero32(total * pow2wide(exps[j]-fraction))
		}
	}
}

// towardZero32 rounds v, whose magnitude is that of a normal float32 or 0, toward zero.
func towardZero32(v float64) float32 {
	return float32(math.Float64frombits(math.Float64bits(v) &^ (1<<(52-23) - 1)))
}

// runDots is the kernel of FP4 units with block scales: exact dot products of 16, times 4, as
// integers.
func runDots(p *product, rows, g int) {
	const group, blocks = maxGroup, maxGroup / exactDot
	for i := range rows {
		a := p.left.bytes[(g*rows+i)*group:][:group]
		masks := p.left.masks[(g*rows+i)*blocks:][:blocks]
		scales, exps := p.left.scales[(g*rows+i)*blocks:][:blocks], p.left.scaleE[(g*rows+i)*blocks:][:blocks]
		for j := range panelCols {
			c := &p.c[i*panelCols+j]
			e, bad := exponentOf(*c)
			var terms [blocks]float64
			zeros := true
			for s := range blocks {
				at := (g*blocks+s)*panelCols + j
				dot := -p.right.sums[at]
				for k := s * exactDot; k < (s+1)*exactDot; k++ {
					dot += int32(a[k]) * int32(int8(p.right.bytes[((g*group+k)/4*panelCols+j)*4+k%4]))
				}
				scale := scales[s] * p.right.scales[at]
				if masks[s]&p.right.masks[at] != 0 {
					e, zeros = max(e, int(exps[s]+p.right.scaleE[at])), false
				}
				terms[s] = float64(dot) * scale
			}
			if zeros && *c == 0 {
				*c = 0
				continue
			}
			if bad || e < -maxExp || e > maxExp {
				p.bad[i] |= 1 << j
				continue
			}
			unit := pow2wide(p.unit.fraction - e)
			total := math.Trunc(float64(*c) * unit)
			for _, t := range terms {
				total += math.Trunc(t * unit / 4)
			}
			*c = towardZero32(total / unit)
		}
	}
}
