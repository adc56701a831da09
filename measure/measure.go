// Package measure states the error of one tensor against another, and knows
// nothing of formats: anything can be measured.
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
	"slices"
)

// An Accumulator sums what a Result is made of, in float64 and in the order of
// the calls. It must be made by New. It is not safe for concurrent use: give
// each goroutine or tile its own and Merge them in a fixed order, and the
// result is the same to the bit on any number of goroutines and with any kernel.
type Accumulator struct {
	block int

	elements      int64
	nonFiniteWant int64
	nonFinite     int64

	signal float64 // Σx²
	noise  float64 // Σe²
	lanes  lanes

	// The product over blocks of Σx²/Σe² is ratio·2^exponent: one logarithm
	// at the end does for the sum of all. 1 ≤ ratio < 2^512.
	ratio    float64
	exponent int64
	blocks   int64 // in that product

	room *kernelRoom
}

// New returns an accumulator whose blocks are of the given number of elements
// along a row. Formats are comparable where the number is the same for all of
// them: 32 is the field's. It panics where block is not positive.
func New(block int) *Accumulator {
	if block <= 0 {
		panic(fmt.Sprintf("measure: blocks of %d elements", block))
	}
	return &Accumulator{block: block, ratio: 1}
}

// A Row is what was wanted and got of a row of a tensor, or of a part of one
// that begins at a block. Elements past the last whole block are a block of
// their own.
type Row struct {
	Want     []float32
	WantBF16 []byte // in place of Want: BF16, little-endian
	Got      []float32

	// Limits[i/Extent] is the largest magnitude that the block of element i can
	// represent: its decode scale times the largest value of the element format.
	// Elements of Want beyond it are counted as saturated. Scales that are rounded
	// to nearest, as NVFP4's, put the top of many blocks slightly beyond. Without
	// limits nothing saturates.
	Limits []float32
	Extent int
}

// Add measures a row: got against want. It panics where the lengths differ.
func (a *Accumulator) Add(want, got []float32) { a.AddRow(Row{Want: want, Got: got}) }

// AddCopy counts elements that were copied as they are, and how many of them are
// NaN or Inf.
func (a *Accumulator) AddCopy(elements, nonFinite int) {
	a.elements += int64(elements)
	a.nonFiniteWant += int64(nonFinite)
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
	a.signal += b.signal
	a.noise += b.noise
	a.lanes.add(&b.lanes)
	a.multiply(b.ratio, b.exponent, b.blocks)
}

// multiply takes more blocks into the product: their own is ratio·2^exponent,
// of a normal ratio.
func (a *Accumulator) multiply(ratio float64, exponent, blocks int64) {
	fraction, e := normalized(ratio)
	a.ratio *= fraction
	a.exponent += exponent + e
	a.blocks += blocks
	if a.ratio >= 0x1p512 {
		a.ratio, e = normalized(a.ratio)
		a.exponent += e
	}
}

// normalized returns 1 ≤ fraction < 2 and the exponent of a positive normal number.
func normalized(x float64) (fraction float64, exponent int64) {
	bits := math.Float64bits(x)
	return math.Float64frombits(bits&(1<<52-1) | 1023<<52), int64(bits>>52) - 1023
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

	Saturated     int64 // elements beyond what their block can represent (see Row)
	Flushed       int64 // elements that are not zero and became it
	NonFinite     int64 // finite elements that became NaN or Inf; in no other figure
	NonFiniteWant int64 // elements that were NaN or Inf; in no other figure
}

// Result returns the figures of what was added so far.
func (a *Accumulator) Result() Result {
	power, product, errors, magnitude := total(&a.lanes.power), total(&a.lanes.product), total(&a.lanes.errors), total(&a.lanes.magnitude)
	r := Result{
		Elements:      a.elements,
		SQNR:          decibel(a.signal / a.noise),
		MeanBlockSQNR: (decibel(a.ratio) + float64(a.exponent)*decibel(2)) / float64(a.blocks),
		Cosine:        min(product/(math.Sqrt(a.signal)*math.Sqrt(power)), 1),
		MaxRelative:   slices.Max(a.lanes.worst[:]),
		Bias:          errors / magnitude,
		Saturated:     a.lanes.saturated,
		Flushed:       a.lanes.flushed,
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

func decibel(ratio float64) float64 { return 10 * math.Log10(ratio) }
