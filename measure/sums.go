package measure

import (
	"fmt"
	"math"
)

// lanes are sums in eight parts: element i of a block is added to part i mod 8, so that a
// kernel with eight lanes gives the bits of addBlock. The kernels depend on the order of the
// fields.
type lanes struct {
	power     [8]float64 // Σx̂²
	product   [8]float64 // Σx·x̂
	errors    [8]float64 // Σe
	magnitude [8]float64 // Σ|x|
	worst     [8]float64 // the largest |e|/|x|, to one unit in the last place
	saturated int64
	flushed   int64
}

// add adds the sums of b to l.
func (l *lanes) add(b *lanes) {
	for i := range 8 {
		l.power[i] += b.power[i]
		l.product[i] += b.product[i]
		l.errors[i] += b.errors[i]
		l.magnitude[i] += b.magnitude[i]
		l.worst[i] = max(l.worst[i], b.worst[i])
	}
	l.saturated += b.saturated
	l.flushed += b.flushed
}

// total returns the sum of eight lanes, added pairwise by halves.
func total(v *[8]float64) float64 {
	return (v[0] + v[4] + (v[2] + v[6])) + (v[1] + v[5] + (v[3] + v[7]))
}

// AddRow measures a row. It panics if lengths do not match.
func (a *Accumulator) AddRow(r Row) {
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
	if r.WantBF16 == nil {
		return r.Want[from:to]
	}
	for i := 2 * from; i < 2*to; i += 2 {
		buffer = append(buffer, math.Float32frombits(uint32(r.WantBF16[i])<<16|uint32(r.WantBF16[i+1])<<24))
	}
	return buffer
}

// addBlock measures elements [from, to), which form one block. It is the reference
// implementation of the kernels.
func (a *Accumulator) addBlock(r Row, from, to int, buffer []float32) {
	var signal, noise [8]float64
	l := &a.lanes
	want, got := r.want(from, to, buffer), r.Got[from:to]
	for i, w := range want {
		x, y := float64(w), float64(got[i])
		e := y - x
		if e-e != 0 { // one of the two is NaN or Inf
			if x-x != 0 {
				a.nonFiniteWant++
			} else {
				a.nonFinite++
			}
			continue
		}
		lane := i & 7
		m, d := math.Abs(x), math.Abs(e)
		signal[lane] += float64(x * x)
		noise[lane] += float64(e * e)
		l.power[lane] += float64(y * y)
		l.product[lane] += float64(x * y)
		l.errors[lane] += e
		l.magnitude[lane] += m
		if x == 0 {
			continue
		}
		// BF16 values repeat their ratios often. The next number above worst bounds the quotient that
		// was rounded to worst, so that equal ratios do not exceed it again.
		bound := math.Float64frombits(math.Float64bits(l.worst[lane]) + 1)
		if math.FMA(-bound, m, d) > 0 { // exactly d/m > bound
			l.worst[lane] = d / m
		}
		if y == 0 {
			l.flushed++
		}
	}
	if len(r.Limits) > 0 {
		for i, w := range want {
			if m := math.Abs(float64(w)); m > float64(r.Limits[(from+i)/r.Extent]) && m <= math.MaxFloat32 {
				l.saturated++
			}
		}
	}
	a.endBlocks([]float64{total(&signal), total(&noise)})
}

// endBlocks adds Σx² and Σe² of each block to the sums of all blocks.
func (a *Accumulator) endBlocks(totals []float64) {
	signals, noises, ratio, exponent, blocks := a.signal, a.noise, a.ratio, a.exponent, a.blocks
	for ; len(totals) >= 2; totals = totals[2:] {
		signal, noise := totals[0], totals[1]
		signals += signal
		noises += noise
		if signal > 0 && noise > 0 {
			fraction, e := normalized(signal / noise)
			ratio *= fraction
			exponent += e
			blocks++
			if ratio >= 0x1p512 {
				ratio, e = normalized(ratio)
				exponent += e
			}
		}
	}
	a.signal, a.noise, a.ratio, a.exponent, a.blocks = signals, noises, ratio, exponent, blocks
}
