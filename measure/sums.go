package measure

import (
	"fmt"
	"math"
)

// lanes are sums over blocks, of which x is a wanted element and d = x - x̂ its difference to the
// result. Sums in float32 are of one block. The kernels depend on the order of the fields.
type lanes struct {
	totals    [4]float64  // Σx², Σd², Σx·d and Σd
	magnitude [8]float64  // Σ|x|: element i of a block is in part i mod 8
	worst     [16]float32 // the largest |d|/|x|, to one unit in the last place, in parts as well
	saturated int64
	flushed   int64
}

// add adds the sums of b to l.
func (l *lanes) add(b *lanes) {
	for i, v := range b.totals {
		l.totals[i] += v
	}
	for i, v := range b.magnitude {
		l.magnitude[i] += v
	}
	for i, v := range b.worst {
		l.worst[i] = max(l.worst[i], v)
	}
	l.saturated += b.saturated
	l.flushed += b.flushed
}

// total returns the sum of the parts, added pairwise by halves.
func total(v *[16]float32) float32 {
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			v[i] += v[i+n]
		}
	}
	return v[0]
}

// AddRow measures a row. It panics if lengths do not match, or if New did not create a.
func (a *Accumulator) AddRow(r Row) {
	if a.block == 0 {
		panic("measure: the accumulator has no block size: create it with New")
	}
	n := len(r.Got)
	if want := len(r.Want) + len(r.WantBF16)/2; want != n || len(r.WantBF16)%2 != 0 {
		panic(fmt.Sprintf("measure: row: got %d elements, want %d", n, want))
	}
	if len(r.Limits) > 0 && (r.Extent <= 0 || len(r.Limits) < (n+r.Extent-1)/r.Extent) {
		panic(fmt.Sprintf("measure: row: got %d limits for %d elements with an extent of %d", len(r.Limits), n, r.Extent))
	}
	a.elements += int64(n)
	kernel := a.kernel(&r)
	var buffer [kernelBlock]float32
	for i := 0; i < n; {
		if kernel != nil {
			i += kernel.add(a, &r, i)
		}
		if i < n { // blocks with NaN or Inf, and the partial block
			end := min(i+a.block, n)
			a.addBlock(r, i, end, buffer[:0])
			i = end
		}
	}
}

// want returns the wanted elements [from, to), decoded into buffer if they are not float32.
func (r *Row) want(from, to int, buffer []float32) []float32 {
	if len(r.WantBF16) == 0 {
		return r.Want[from:to]
	}
	for i := 2 * from; i < 2*to; i += 2 {
		buffer = append(buffer, math.Float32frombits(uint32(r.WantBF16[i])<<16|uint32(r.WantBF16[i+1])<<24))
	}
	return buffer
}

// addBlock measures elements [from, to), which form one block.
func (a *Accumulator) addBlock(r Row, from, to int, buffer []float32) {
	want, got := r.want(from, to, buffer), r.Got[from:to]
	if ratio, ok := a.lanes.addSingle(want, got); ok {
		a.endBlocks([]float32{ratio})
	} else {
		a.addDouble(want, got)
	}
	if len(r.Limits) > 0 {
		for i, w := range want {
			if m := math.Abs(float64(w)); m > float64(r.Limits[(from+i)/r.Extent]) && m <= math.MaxFloat32 {
				a.lanes.saturated++
			}
		}
	}
}

// addSingle adds a block that float32 sums to about seven digits, and returns Σx²/Σd², or 0 if the
// block is exact. ok is false, and l unchanged, if a square could overflow or lose digits, if the
// error is so large that differences of sums lose digits, and if an element is NaN or Inf. It is
// the reference implementation of the kernels.
func (l *lanes) addSingle(want, got []float32) (ratio float32, ok bool) {
	var signal, noise, cross, loss, magnitude [16]float32
	worst, flushed := l.worst, int64(0)
	var anyX, anyD uint32 // bits of their magnitudes
	got = got[:len(want)]
	for i, x := range want {
		y := got[i]
		d := x - y
		lane := i & 15
		signal[lane] += float32(x * x)
		noise[lane] += float32(d * d)
		cross[lane] += float32(x * d)
		loss[lane] += d
		bitsX, bitsD := math.Float32bits(x)&^(1<<31), math.Float32bits(d)&^(1<<31)
		anyX, anyD = anyX|bitsX, anyD|bitsD
		m, e := math.Float32frombits(bitsX), math.Float32frombits(bitsD)
		magnitude[lane] += m
		// Divide only if the ratio exceeds the number after the worst one before the block. The quotient
		// that was rounded to the worst one is below that number, so BF16 values, which often have equal
		// ratios, need few divisions.
		bound := math.Float32frombits(math.Float32bits(l.worst[lane]) + 1)
		if float64(e) > float64(bound)*float64(m) && x != 0 { // exactly e/m > bound
			worst[lane] = max(worst[lane], e/m)
		}
		if y == 0 && x != 0 {
			flushed++
		}
	}
	zero, exact := anyX == 0, anyD == 0
	totals := [4]float32{total(&signal), total(&noise), total(&cross), total(&loss)}
	ratio = totals[0] / totals[1]
	switch {
	case moderate(totals[0]) && moderate(totals[1]) && ratio >= 2:
	case exact && (zero || moderate(totals[0])):
		ratio = 0
	default:
		return 0, false
	}
	for i, v := range totals {
		l.totals[i] += float64(v)
	}
	for i := range l.magnitude {
		l.magnitude[i] += float64(magnitude[i] + magnitude[i+8])
	}
	l.worst, l.flushed = worst, l.flushed+flushed
	return ratio, true
}

// moderate reports whether neither a sum of squares nor one of its terms that counts is near the
// limits of float32.
func moderate(sum float32) bool { return sum >= 0x1p-100 && sum < 0x1p100 }

// addDouble adds a block in float64. It counts NaN and Inf.
func (a *Accumulator) addDouble(want, got []float32) {
	var signal, noise, cross, loss float64
	l := &a.lanes
	for i, w := range want {
		x, y := float64(w), float64(got[i])
		d := x - y
		if d-d != 0 { // one of the two is NaN or Inf
			if x-x != 0 {
				a.nonFiniteWant++
			} else {
				a.nonFinite++
			}
			continue
		}
		signal += float64(x * x)
		noise += float64(d * d)
		cross += float64(x * d)
		loss += d
		l.magnitude[i&7] += math.Abs(x)
		if x != 0 {
			l.worst[i&15] = max(l.worst[i&15], float32(math.Abs(d)/math.Abs(x)))
			if y == 0 {
				l.flushed++
			}
		}
	}
	for i, v := range [...]float64{signal, noise, cross, loss} {
		l.totals[i] += v
	}
	if signal > 0 && noise > 0 {
		a.multiply(signal/noise, 0, 1)
	}
}

// endBlocks multiplies the product over blocks by the ratios of addSingle that are not zero.
func (a *Accumulator) endBlocks(ratios []float32) {
	ratio, exponent, blocks := a.ratio, a.exponent, a.blocks
	for _, r := range ratios {
		if r == 0 {
			continue
		}
		bits := math.Float32bits(r)
		ratio *= float64(math.Float32frombits(bits&(1<<23-1) | 127<<23))
		exponent += int64(bits>>23) - 127
		blocks++
		if ratio >= 0x1p512 {
			var e int64
			ratio, e = normalized(ratio)
			exponent += e
		}
	}
	a.ratio, a.exponent, a.blocks = ratio, exponent, blocks
}
