// Package measure computes the error of one tensor against another. It does not depend on
// formats.
//
// With wanted values x, results x̂ and e = x̂ - x, over all elements of which both are finite:
//
//	SQNR            10·log10(Σx² / Σe²)                          dB
//	MeanBlockSQNR   mean of the SQNR of the blocks               dB
//	Cosine          Σx·x̂ / √(Σx² · Σx̂²)
//	MaxRelative     max |e|/|x|, over x ≠ 0
//	Bias            Σe / Σ|x|
//
// The largest elements dominate SQNR: a format may lose whole blocks of small elements
// without a change of the SQNR. The mean over blocks shows such losses.
package measure

import (
	"fmt"
	"math"
	"slices"
)

// An Accumulator sums the terms of a Result in the order of the calls: the elements of a block in
// float32, or in float64 where float32 would overflow or lose digits, and the blocks in float64. The
// relative error of a sum of squares over a block is at most 8·2⁻²⁴. [New] creates an Accumulator.
//
// An Accumulator is not safe for concurrent use. Give each goroutine or tile a separate one and
// Merge them in a fixed order: the result is then bit-identical for any number of goroutines and
// any kernel.
type Accumulator struct {
	block int

	elements      int64
	nonFiniteWant int64
	nonFinite     int64

	lanes lanes

	// The product over blocks of Σx²/Σe² is ratio·2^exponent, so that one logarithm at the end
	// suffices. 1 ≤ ratio < 2^512.
	ratio    float64
	exponent int64
	blocks   int64 // number of blocks in that product

	buffer *kernelBuffers
}

// New returns an accumulator for blocks of the given number of elements along a row. To
// compare formats, use one number for all; 32 is the common choice. New panics if block is not
// positive.
func New(block int) *Accumulator {
	if block <= 0 {
		panic(fmt.Sprintf("measure: block size: got %d, want a positive number", block))
	}
	return &Accumulator{block: block, ratio: 1}
}

// A Row holds the wanted values and the results of a row of a tensor, or of a part of one that
// starts at a block. Elements past the last whole block form a partial block.
type Row struct {
	Want     []float32
	WantBF16 []byte // BF16, little-endian, instead of Want
	Got      []float32

	// Limits[i/Extent] is the largest magnitude that the block of element i can represent: its
	// decode scale times the largest value of the element format. Elements of Want above it
	// count as saturated. NVFP4 rounds its scales to nearest, so that the amax of many blocks is
	// slightly above their limit. Without limits, no element counts as saturated.
	Limits []float32
	Extent int // elements per limit; not read without limits
}

// Add measures the row got against want. It panics if the lengths differ, or if New did not create a.
func (a *Accumulator) Add(want, got []float32) { a.AddRow(Row{Want: want, Got: got}) }

// AddCopy counts elements that were copied unchanged, nonFinite of which are NaN or Inf.
func (a *Accumulator) AddCopy(elements, nonFinite int) {
	a.elements += int64(elements)
	a.nonFiniteWant += int64(nonFinite)
}

// Merge adds the sums of b, as if its rows had been added to a. It panics if the block sizes
// differ.
func (a *Accumulator) Merge(b *Accumulator) {
	if a.block != b.block {
		panic(fmt.Sprintf("measure: merge: block sizes %d and %d differ", a.block, b.block))
	}
	a.elements += b.elements
	a.nonFiniteWant += b.nonFiniteWant
	a.nonFinite += b.nonFinite
	a.lanes.add(&b.lanes)
	a.multiply(b.ratio, b.exponent, b.blocks)
}

// multiply multiplies the product by ratio·2^exponent of further blocks. ratio must be a
// normal number.
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

// normalized returns fraction in [1, 2) and the exponent of a positive normal number.
func normalized(x float64) (fraction float64, exponent int64) {
	bits := math.Float64bits(x)
	return math.Float64frombits(bits&(1<<52-1) | 1023<<52), int64(bits>>52) - 1023
}

// A Result is the error of one tensor. If elements became NaN or Inf and all others are exact,
// SQNR, cosine and bias are NaN.
type Result struct {
	Elements int64

	SQNR          float64 // dB; +Inf for an exact copy, -Inf if only zeros changed
	MeanBlockSQNR float64 // dB, over the blocks that have both signal and error, NaN if there is none; +Inf for an exact copy
	Cosine        float64 // 1 for an exact copy, zeros included; NaN if one side is all zeros
	MaxRelative   float64 // 1 if an element was flushed to zero and no error is larger
	Bias          float64 // mean error relative to mean magnitude; not finite if only zeros changed

	Saturated     int64 // elements above the limit of their block (see Row)
	Flushed       int64 // nonzero elements that became zero
	NonFinite     int64 // finite elements that became NaN or Inf; excluded from all other figures
	NonFiniteWant int64 // elements that were NaN or Inf; excluded from all other figures
}

// Result returns the figures of all rows added so far.
func (a *Accumulator) Result() Result {
	signal, noise, cross, loss := a.lanes.totals[0], a.lanes.totals[1], a.lanes.totals[2], a.lanes.totals[3]
	product, power := signal-cross, signal-2*cross+noise // Σx·x̂ and Σx̂²
	var magnitude float64
	for _, v := range a.lanes.magnitude {
		magnitude += v
	}
	r := Result{
		Elements:      a.elements,
		SQNR:          decibel(signal / noise),
		MeanBlockSQNR: (decibel(a.ratio) + float64(a.exponent)*decibel(2)) / float64(a.blocks),
		Cosine:        min(product/(math.Sqrt(signal)*math.Sqrt(power)), 1),
		MaxRelative:   float64(slices.Max(a.lanes.worst[:])),
		Bias:          (0 - loss) / magnitude,
		Saturated:     a.lanes.saturated,
		Flushed:       a.lanes.flushed,
		NonFinite:     a.nonFinite,
		NonFiniteWant: a.nonFiniteWant,
	}
	switch {
	case noise > 0:
	case a.nonFinite > 0: // not an exact copy
		undefined := math.NaN()
		r.SQNR, r.MeanBlockSQNR, r.Cosine, r.Bias = undefined, undefined, undefined, undefined
	default:
		r.SQNR, r.MeanBlockSQNR, r.Cosine, r.Bias = math.Inf(1), math.Inf(1), 1, 0
	}
	return r
}

func decibel(ratio float64) float64 { return 10 * math.Log10(ratio) }
