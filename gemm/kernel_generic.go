package gemm

import (
	"math"
	"math/bits"
	"unsafe"
)

// The kernels in portable Go. They are built on every machine. referenceF32 is the fallback. The
// BF16 and int8 kernels match those in assembly bit for bit and run only when requested by
// name.
var (
	referenceF32  = kernel{Name: "f32-reference", panel: panelF32, Lanes: 16, MR: 4, NR: 16, KC: 512, dot: []dotFunc{dotF32Generic}}
	referenceBF16 = kernel{Name: "bf16-reference", panel: panelBF16, Lanes: lanes16, MR: 8, NR: lanes16, KC: bf16KC,
		dot: []dotFunc{dotPairs(lanes16, false, addFused)}}
	referenceOdd = kernel{Name: "bf16-odd-reference", panel: panelBF16, wide: true, Lanes: 8, MR: 8, NR: 8, KC: oddKC,
		dot: []dotFunc{dotPairs(8, true, addOdd)}}
	referenceTile = kernel{Name: "bf16-tile-reference", panel: panelBF16, Lanes: 16, MR: 32, NR: 32, KC: tileKC, span: tileSpan,
		macro: []macroFunc{macroTileGeneric, macroTileGeneric}}
	referenceMX = kernel{Name: "int8-mx-reference", panel: panelInt8, block: 32, pow2: true, Lanes: 16, MR: 4, NR: 16, KC: int8KC,
		dot: []dotFunc{dotIntegers(lanes16, false, addExponents)}}
	referenceNV = kernel{Name: "int8-nv-reference", panel: panelInt8, block: 16, Lanes: 16, MR: 4, NR: 16, KC: int8KC,
		dot: []dotFunc{dotIntegers(lanes16, false, addScaled)}}
	referenceWideMX = kernel{Name: "int8-mx-wide-reference", panel: panelInt8, block: 32, pow2: true, wide: true, Lanes: 8, MR: 4, NR: 8,
		KC: int8KC, dot: []dotFunc{dotIntegers(8, true, addPowers)}}
	referenceWideNV = kernel{Name: "int8-nv-wide-reference", panel: panelInt8, block: 16, wide: true, Lanes: 8, MR: 4, NR: 8, KC: int8KC,
		dot: []dotFunc{dotIntegers(8, true, addScaled)}}
)

// KC and span affect the rounding of sums, so a kernel and its portable twin share them.
const (
	bf16KC, oddKC, int8KC, tileKC = 2048, 1024, 2048, 2048
	tileSpan                      = 512
)

const lanes16 = 16 // lanes of a panel of the portable kernels

// dotF32Generic is the 4×16 float32 kernel. It rounds each product before the addition on
// every machine, as dotGeneric does.
func dotF32Generic(chunks, steps int, a, b unsafe.Pointer, _ int, c *float32, ldc int, alpha float32, accumulate bool) {
	chunk := (steps + 1) * lanes16
	as, bs := unsafe.Slice((*float32)(a), (chunks-1)*chunk+steps*lanes16+4), unsafe.Slice((*float32)(b), chunks*chunk)
	for range chunks {
		for j := 0; j < lanes16; j += 4 {
			var s00, s01, s02, s03, s10, s11, s12, s13, s20, s21, s22, s23, s30, s31, s32, s33 float32
			for k := range steps {
				x, y := (*[4]float32)(as[k*lanes16:]), (*[4]float32)(bs[k*lanes16+j:])
				y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
				s00 += float32(x[0] * y0)
				s01 += float32(x[0] * y1)
				s02 += float32(x[0] * y2)
				s03 += float32(x[0] * y3)
				s10 += float32(x[1] * y0)
				s11 += float32(x[1] * y1)
				s12 += float32(x[1] * y2)
				s13 += float32(x[1] * y3)
				s20 += float32(x[2] * y0)
				s21 += float32(x[2] * y1)
				s22 += float32(x[2] * y2)
				s23 += float32(x[2] * y3)
				s30 += float32(x[3] * y0)
				s31 += float32(x[3] * y1)
				s32 += float32(x[3] * y2)
				s33 += float32(x[3] * y3)
			}
			sums := [4][4]float32{{s00, s01, s02, s03}, {s10, s11, s12, s13}, {s20, s21, s22, s23}, {s30, s31, s32, s33}}
			for i := range sums {
				row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), 4*(i*ldc+j))), 4)
				for jj, s := range sums[i] {
					addTo(&row[jj], alpha, as[steps*lanes16+i], bs[steps*lanes16+j+jj], s, accumulate)
				}
			}
		}
		accumulate = true
		if as, bs = as[min(chunk, len(as)):], bs[chunk:]; len(bs) == 0 {
			return
		}
	}
}

// addTo adds the sum of one chunk to an element of C.
func addTo(c *float32, alpha, sa, sb, sum float32, accumulate bool) {
	s := float32(float32(alpha*sb) * sa)
	if accumulate {
		*c = fma(float64(s)*float64(sum), *c)
	} else {
		*c = float32(s * sum)
	}
}

// fma returns product + c rounded once to float32. The product is exact in float64. If the sum
// is not, it is rounded to odd, so that the second rounding gives the result of a single one
// (Boldo and Melquiond, "Emulation of a FMA and Correctly Rounded Sums", 2008).
func fma(product float64, c float32) float32 { return float32(sumOdd(product, float64(c))) }

// sumOdd returns product + y rounded to odd: to the number next to it whose last bit is 1, if it is not exact.
func sumOdd(product, y float64) float64 {
	sum := product + y
	t := sum - product
	err := (product - (sum - t)) + (y - t) // the rounding error of sum, exactly
	if err != 0 && !math.IsInf(sum, 0) && !math.IsNaN(sum) {
		bits := math.Float64bits(sum)
		if (err > 0) == (sum > 0) {
			bits |= 1
		} else if bits&1 == 0 {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return sum
}

// dotPairs returns the kernel of 8 rows for BF16 panels of that many lanes, which are wide panels (see kernel) if wide is true. It adds
// pairs of products with add.
func dotPairs(lanes int, wide bool, add func(sum float32, x, y uint32) float32) dotFunc {
	const mr = 8
	return func(chunks, steps int, a, b unsafe.Pointer, _ int, c *float32, ldc int, alpha float32, accumulate bool) {
		chunk := (steps + 1) * lanes
		for n := range chunks {
			if n > 0 { // no pointer may pass the end of a panel
				a, b = unsafe.Add(a, 4*chunk), unsafe.Add(b, 4*chunk)
			}
			as, bs := unsafe.Slice((*uint32)(a), steps*lanes+mr), unsafe.Slice((*uint32)(b), chunk)
			for i := range mr {
				row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), 4*i*ldc)), lanes)
				for j := range row {
					var sum float32
					for k := range steps {
						sum = add(sum, as[wordAt(k, i, lanes, wide)], bs[wordAt(k, j, lanes, wide)])
					}
					sa, sb := math.Float32frombits(as[steps*lanes+i]), math.Float32frombits(bs[steps*lanes+j])
					addTo(&row[j], alpha, sa, sb, sum, accumulate)
				}
			}
			accumulate = true
		}
	}
}

// addFused is the arithmetic of VDPBF16PS: of a pair it adds the odd element first, then the even one, each with one fused
// multiply-add rounded to nearest even. Subnormal inputs and results are flushed to zero.
func addFused(sum float32, x, y uint32) float32 {
	sum = fmaFlushed(x&0xffff0000, y&0xffff0000, sum)
	return fmaFlushed(x<<16, y<<16, sum)
}

// addOdd is the arithmetic of BFDOT: it adds the two products of a pair, then their sum, both rounded to odd. Subnormal inputs and
// results are flushed to zero. (Arm Architecture Reference Manual, BFDotAdd without FPCR.EBF.)
func addOdd(sum float32, x, y uint32) float32 {
	const upper = 0xffff0000
	return addFlushed(sum, addFlushed(productFlushed(x<<16, y<<16), productFlushed(x&upper, y&upper)))
}

// productFlushed returns x·y for the bits of BF16 elements as float32, exact but for subnormals.
func productFlushed(x, y uint32) float32 {
	return flush(float32(float64(flush(math.Float32frombits(x))) * float64(flush(math.Float32frombits(y)))))
}

// addFlushed returns x + y rounded to odd, or Inf from 2¹²⁸ on.
func addFlushed(x, y float32) float32 {
	exact := sumOdd(float64(x), float64(y))
	sum := float32(exact)
	if s := float64(sum); s != exact && s == s && math.Abs(exact) < 0x1p128 {
		bits := math.Float32bits(sum)
		if math.Abs(s) > math.Abs(exact) {
			bits--
		}
		sum = math.Float32frombits(bits | 1)
	}
	return flush(sum)
}

// fmaFlushed returns x·y + c for float32 bits x and y, with subnormals flushed to zero.
func fmaFlushed(x, y uint32, c float32) float32 {
	return flush(fma(float64(flush(math.Float32frombits(x)))*float64(flush(math.Float32frombits(y))), c))
}

// flush returns x, or a zero of the same sign if x is subnormal.
func flush(x float32) float32 {
	if bits := math.Float32bits(x); bits&(0xff<<23) == 0 {
		return math.Float32frombits(bits & (1 << 31))
	}
	return x
}

// macroTileGeneric is the BF16 macro-kernel with the arithmetic of TDPBF16PS. For each tile it
// sums the even and the odd elements separately, in order, each with one fused multiply-add
// rounded to nearest even. It adds the two sums, then adds the result to the sum of the chunk.
// Subnormal inputs and results are flushed to zero.
func macroTileGeneric(p macroArgs) {
	const tile = tileSteps * lanes16
	tiles, chunk := p.tiles, p.tiles*tile+lanes16
	words, width := p.chunks*chunk, bits.Len32(p.columns)
	for i := range p.rows {
		as := unsafe.Slice((*uint32)(unsafe.Add(p.a, i/lanes16*p.aPanel)), words)
		row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(p.c), i*p.ldc)), width)
		for j := range row {
			bs := unsafe.Slice((*uint32)(unsafe.Add(p.b, j/lanes16*p.bPanel)), words)
			ii, jj, add := i%lanes16, j%lanes16, p.accumulate
			for n := 0; n < words; n += chunk {
				var sum float32
				for t := n; t < n+tiles*tile; t += tile {
					var even, odd float32
					for k := range tileSteps {
						x, y := as[t+ii*tileSteps+k], bs[t+k*lanes16+jj]
						even = fmaFlushed(x<<16, y<<16, even)
						odd = fmaFlushed(x&0xffff0000, y&0xffff0000, odd)
					}
					sum = flush(sum + flush(even+odd))
				}
				sa, sb := math.Float32frombits(as[n+tiles*tile+ii]), math.Float32frombits(bs[n+tiles*tile+jj])
				addTo(&row[j], p.alpha, sa, sb, sum, add)
				add = true
			}
		}
	}
}

// addExponents adds the sum of a block times its scales, of which that of B is an exponent.
func addExponents(total float32, sa, sb, sum uint32) float32 {
	scaled := math.Float32frombits(sum) - math.Float32frombits(sa)
	return total + float32(math.Ldexp(float64(scaled), int(math.Float32frombits(sb))))
}

// addPowers is addExponents with the scale of B as it is, a power of two.
func addPowers(total float32, sa, sb, sum uint32) float32 {
	scaled := math.Float32frombits(sum) - math.Float32frombits(sa)
	return fma(float64(scaled)*float64(math.Float32frombits(sb)), total)
}

// addScaled rounds the product of the scales of a block to float32, and adds it times the sum, an integer, with one fused multiply-add.
func addScaled(total float32, sa, sb, sum uint32) float32 {
	scale := float32(math.Float32frombits(sa) * math.Float32frombits(sb))
	return fma(float64(scale)*float64(int32(sum)), total)
}

// dotIntegers returns the kernel of 4 rows for int8 panels of that many lanes, which are wide panels with signed elements of B if wide is
// true. It adds sums of blocks with add.
func dotIntegers(lanes int, wide bool, add func(total float32, sa, sb, sum uint32) float32) dotFunc {
	const mr = 4
	element := func(word uint32) int32 { return int32(uint8(word)) } // of B
	if wide {
		element = func(word uint32) int32 { return int32(int8(word)) }
	}
	return func(chunks, steps int, a, b unsafe.Pointer, _ int, c *float32, ldc int, alpha float32, accumulate bool) {
		chunkA, chunkB := (steps+2)*mr, (steps+1)*lanes
		totals := make([]float32, mr*lanes)
		for n := range chunks {
			if n > 0 {
				a, b = unsafe.Add(a, 4*chunkA), unsafe.Add(b, 4*chunkB)
			}
			as, bs := unsafe.Slice((*uint32)(a), chunkA), unsafe.Slice((*uint32)(b), chunkB)
			for i := range mr {
				for j := range lanes {
					sum := as[(steps+1)*mr+i]
					for k := range steps {
						x, y := as[wordAt(k, i, mr, wide)], bs[wordAt(k, j, lanes, wide)]
						for s := 0; s < 32; s += 8 {
							sum += uint32(int32(int8(x>>s)) * element(y>>s))
						}
					}
					total := &totals[i*lanes+j]
					*total = add(*total, as[steps*mr+i], bs[steps*lanes+j], sum)
				}
			}
		}
		for i := range mr {
			row := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(c), 4*i*ldc)), lanes)
			for j := range row {
				if total := totals[i*lanes+j]; accumulate {
					row[j] = fma(float64(alpha)*float64(total), row[j])
				} else {
					row[j] = float32(alpha * total)
				}
			}
		}
	}
}
