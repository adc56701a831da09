// Package measure states the error of one tensor against another, and imports
// nothing of this module: anything can be measured.
//
// With x what was wanted, x̂ what was got and e = x̂ - x, over all elements of
// which both are finite:
//
//	SQNR            10·log10(Σx² / Σe²)                          dB
//	MeanBlockSQNR   the mean of the SQNR of single blocks        dB
//	Cosine          Σx·x̂ / √(Σx² · Σx̂²)
//	MaxRelative     max |e|/|x|, over x ≠ 0
//	Bias            Σe / Σ|x|
//
// SQNR is governed by the largest elements: a format may lose whole blocks of
// small ones without its SQNR moving. The mean over blocks shows that.
package measure

import (
	"fmt"
	"math"
)

// An Accumulator sums what a Result is made of, in float64 and in the order of
// the calls. It must be made by New. It is not safe for concurrent use: give
// each goroutine or tile its own and Merge them in a fixed order, and the
// result is the same to the bit on any number of goroutines.
type Accumulator struct {
	block int

	elements      int64
	nonFiniteWant int64
	nonFinite     int64
	saturated     int64
	flushed       int64

	signal    float64 // Σx²
	noise     float64 // Σe²
	power     float64 // Σx̂²
	product   float64 // Σx·x̂
	errors    float64 // Σe
	magnitude float64 // Σ|x|

	maxRelative float64
	blockDB     float64 // Σ over blocks of 10·log10(Σx²/Σe²)
	blocks      int64   // blocks in that sum
}

// New returns an accumulator whose blocks are of the given number of elements
// along a row. Formats are comparable where the number is the same for all of
// them: 32 is the field's. It panics where block is not positive.
func New(block int) *Accumulator {
	if block <= 0 {
		panic(fmt.Sprintf("measure: blocks of %d elements", block))
	}
	return &Accumulator{block: block}
}

// Add measures a row, or a part of one that begins at a block: got against
// want. Elements past the last whole block are a block of their own. It panics
// where the lengths differ.
func (a *Accumulator) Add(want, got []float32) {
	if len(want) != len(got) {
		panic(fmt.Sprintf("measure: %d elements wanted, %d got", len(want), len(got)))
	}
	a.elements += int64(len(want))
	for i := 0; i < len(want); i += a.block {
		end := min(i+a.block, len(want))
		a.addBlock(want[i:end], got[i:end])
	}
}

func (a *Accumulator) addBlock(want, got []float32) {
	var signal, noise, power, product, errors, magnitude float64
	worst := a.maxRelative
	got = got[:len(want)]
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
		signal += float64(x * x)
		noise += float64(e * e)
		power += float64(y * y)
		product += float64(x * y)
		errors += e
		m, d := math.Abs(x), math.Abs(e)
		magnitude += m
		if d > worst*m && x != 0 {
			worst = d / m
		}
		if y == 0 && x != 0 {
			a.flushed++
		}
	}
	a.signal += signal
	a.noise += noise
	a.power += power
	a.product += product
	a.errors += errors
	a.magnitude += magnitude
	a.maxRelative = worst
	if signal > 0 && noise > 0 {
		a.blockDB += decibel(signal, noise)
		a.blocks++
	}
}

// CountSaturated counts the elements of want that lie beyond ±limit, the largest
// magnitude that their block can represent: its decode scale times the largest
// value of the element format. Scales that are rounded to nearest, as NVFP4's,
// put the top of many blocks slightly beyond. Call it once for each block with a scale of its
// own, beside Add. NaN and Inf are not counted: they are in NonFiniteWant.
func (a *Accumulator) CountSaturated(want []float32, limit float32) {
	for _, w := range want {
		if m := math.Abs(float64(w)); m > float64(limit) && m <= math.MaxFloat32 {
			a.saturated++
		}
	}
}

// Merge adds what b has seen, as if it had come after what a has seen. The block
// lengths must be the same, or it panics.
func (a *Accumulator) Merge(b *Accumulator) {
	if a.block != b.block {
		panic(fmt.Sprintf("measure: merging blocks of %d and %d elements", a.block, b.block))
	}
	a.elements += b.elements
	a.nonFiniteWant += b.nonFiniteWant
	a.nonFinite += b.nonFinite
	a.saturated += b.saturated
	a.flushed += b.flushed
	a.signal += b.signal
	a.noise += b.noise
	a.power += b.power
	a.product += b.product
	a.errors += b.errors
	a.magnitude += b.magnitude
	a.maxRelative = max(a.maxRelative, b.maxRelative)
	a.blockDB += b.blockDB
	a.blocks += b.blocks
}

// A Result is the error of one tensor. Where elements became NaN or Inf and all
// others are exact, SQNR, cosine and bias are NaN.
type Result struct {
	Elements int64

	SQNR          float64 // dB; +Inf for an exact copy, -Inf where zeros became something else
	MeanBlockSQNR float64 // dB, over the blocks that have both signal and error, NaN where none has; +Inf for an exact copy
	Cosine        float64 // 1 for an exact copy, zeros included; NaN where one side is all zeros
	MaxRelative   float64 // 1 where an element was flushed and nothing is worse
	Bias          float64 // mean error relative to mean magnitude; not finite where zeros became something else

	Saturated     int64 // elements beyond what their block can represent (see CountSaturated)
	Flushed       int64 // elements that are not zero and became it
	NonFinite     int64 // finite elements that became NaN or Inf; in no other figure
	NonFiniteWant int64 // elements that were NaN or Inf; in no other figure
}

// Result returns the figures of what was added so far.
func (a *Accumulator) Result() Result {
	r := Result{
		Elements:      a.elements,
		SQNR:          decibel(a.signal, a.noise),
		MeanBlockSQNR: a.blockDB / float64(a.blocks),
		Cosine:        min(a.product/(math.Sqrt(a.signal)*math.Sqrt(a.power)), 1),
		MaxRelative:   a.maxRelative,
		Bias:          a.errors / a.magnitude,
		Saturated:     a.saturated,
		Flushed:       a.flushed,
		NonFinite:     a.nonFinite,
		NonFiniteWant: a.nonFiniteWant,
	}
	switch {
	case a.noise > 0:
	case a.nonFinite > 0: // what is left is no copy
		undefined := math.NaN()
		r.SQNR, r.MeanBlockSQNR, r.Cosine, r.Bias = undefined, undefined, undefined, undefined
	default:
		r.SQNR, r.MeanBlockSQNR, r.Cosine, r.Bias = math.Inf(1), math.Inf(1), 1, 0
	}
	return r
}

func decibel(signal, noise float64) float64 { return 10 * math.Log10(signal/noise) }
