package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// A Quantizer is a block format and a behavior. It holds no state and may be
// copied, and compared by reflect.DeepEqual. The zero value of every field but Format
// is what Transformer Engine does.
type Quantizer struct {
	Format Format

	Rule         ScaleRule  // E8M0 scales
	ExactRatio   bool       // RatioCeil in exact arithmetic, not on float32(amax·float32(1/max)): they differ on one amax per element format, of INT8 on one per binade
	EvenMantissa int        // mantissa bits that Even rounds to; 0: the element's
	Arithmetic   Arithmetic // FP32 and E4M3 scales
	PowerOfTwo   bool       // FP32 scales are powers of two, rounded away from saturation
	NonFinite    NonFinite  // blocks that hold NaN or Inf
	Smallest     Smallest   // elements under the smallest E8M0 scale
	ZeroScale    ZeroScale  // E8M0 scales of blocks of zeros
	Search       Search     // of the scale of a block, among the neighbors of what the above gives
	TopScale     float32    // E4M3 scale that the global one is made for, of a block with the tensor's amax; 0: 448

	Rounding     format.Rounding // elements
	ElementNaN   format.NaN      // the code of a NaN element
	NegativeZero NegativeZero    // elements of -0

	Hadamard bool // transform each 16 elements along the blocks before scaling (see Hadamard16)
}

// NonFinite says what NaN and Inf do to the scale of their block.
type NonFinite uint8

const (
	Tolerate   NonFinite = iota // amax ignores NaN; Inf takes the largest scale, or what the arithmetic makes of it; NaN elements stay NaN
	Poison                      // the scale is NaN, and so is every element of the block
	PoisonNaN                   // NaN does what it does under Poison; Inf goes through the scale rule or the arithmetic, which give 2^128 its exponent
	PoisonZero                  // as PoisonNaN, but elements are divided by infinity under an E8M0 scale of NaN: all but NaN become zeros
)

// Smallest says what elements are divided by where the E8M0 scale of their block has
// code 0, which is 2^-127 and a subnormal float32. They decode as multiples of 2^-127
// all the same.
type Smallest uint8

const (
	DivideByScale  Smallest = iota // 2^-127
	DivideByNormal                 // 2^-126, the smallest normal float32: torchao's floor, even and ceil
	DivideByOne                    // 1, so that all become zeros: torchao's rceil
)

// smallestExponents are those of the divisors.
var smallestExponents = []int{DivideByScale: -127, DivideByNormal: -126, DivideByOne: 0}

// ZeroScale says which E8M0 scale a block of zeros has.
type ZeroScale uint8

const (
	ZeroScaleMin ZeroScale = iota // 2^-127, the smallest
	ZeroScaleOne                  // 1
)

// NegativeZero says which elements may take the code of -0.
type NegativeZero uint8

const (
	KeepNegativeZero NegativeZero = iota // -0, and every negative value that rounds to zero
	DropZeroInput                        // negative values that round to zero, but not -0 itself, nor what the scale makes -0
	DropNegativeZero                     // none
)

// With holds what a caller may bring to one quantization. The zero value brings
// nothing.
type With struct {
	Amax     *float32 // scale by this amax of the whole tensor, and not by the one seen: ranks, fused siblings, calibration, tiles
	NaN      bool     // there is a NaN in the whole tensor, beyond x or not: it goes with Amax
	Inverse  *float32 // inverse of the decode scale of the whole tensor, of formats that have one: delayed scaling, stored scales of activations
	Random   *Stream  // random bits of stochastic rounding; required by it
	FirstRow int      // the row of the tensor at which x begins, where x is a tile of it: random bits follow the element
	Threads  int      // goroutines; 0: one per processor. Results do not depend on it
	Into     *Tensor  // filled and returned in place of a new tensor; of the same format, direction, rows and columns, its codes and scales as many as NewTensor makes, and nowhere in the memory of x

	// Scales, where it is set, is handed the one-byte scales of each line once,
	// as soon as they are known: a scale of a block that spans several lines with
	// each of them. Several goroutines may call it at a time. It keeps nothing of codes.
	Scales func(line int, codes []byte)
}

// Rowwise quantizes x with blocks along its rows. The result holds the amax that
// was seen, or given and taken, and shares nothing with x. Rows that end within a
// block are filled up with zeros. It fails where the quantizer, x or With.Into is not
// valid (see their Validate), where With.Into shares memory with x, and where random bits
// are lacking.
func (q Quantizer) Rowwise(x tensor.Dense, with With) (*Tensor, error) {
	return q.quantize(denseSource(x), Rowwise, with)
}

// RowwiseBF16 is Rowwise of a matrix in BF16, without a copy in float32.
func (q Quantizer) RowwiseBF16(x tensor.BF16, with With) (*Tensor, error) {
	return q.quantize(rawSource(x), Rowwise, with)
}

// Columnwise quantizes x with blocks down its columns, from the values of x
// and not from a rowwise copy. The result is stored transposed: its lines are the
// columns of x, so that blocks are contiguous.
func (q Quantizer) Columnwise(x tensor.Dense, with With) (*Tensor, error) {
	return q.quantize(denseSource(x), Columnwise, with)
}

// ColumnwiseBF16 is Columnwise of a matrix in BF16.
func (q Quantizer) ColumnwiseBF16(x tensor.BF16, with With) (*Tensor, error) {
	return q.quantize(rawSource(x), Columnwise, with)
}

// Validate reports what makes q unusable.
func (q Quantizer) Validate() error {
	if err := q.Format.Validate(); err != nil {
		return err
	}
	switch {
	case int(q.Rule) >= len(scaleRules):
		return fmt.Errorf("quantizer of %s: unknown scale rule %d", q.Format, q.Rule)
	case int(q.Arithmetic) >= len(arithmetics):
		return fmt.Errorf("quantizer of %s: unknown arithmetic %d", q.Format, q.Arithmetic)
	case int(q.Smallest) >= len(smallestExponents):
		return fmt.Errorf("quantizer of %s: unknown divisor %d under the smallest scale", q.Format, q.Smallest)
	case q.NonFinite > PoisonZero || q.ZeroScale > ZeroScaleOne || q.NegativeZero > DropNegativeZero || q.Rounding > format.Stochastic || q.ElementNaN > format.OppositeZero:
		return fmt.Errorf("quantizer of %s: unknown NonFinite %d, ZeroScale %d, NegativeZero %d, Rounding %d or ElementNaN %d", q.Format, q.NonFinite, q.ZeroScale, q.NegativeZero, q.Rounding, q.ElementNaN)
	case q.EvenMantissa < 0 || mantissaBits <= q.EvenMantissa:
		return fmt.Errorf("quantizer of %s: the even rule rounds to 1 to %d mantissa bits, not %d", q.Format, mantissaBits-1, q.EvenMantissa)
	case !q.Format.Scaled() && q.Rounding != format.NearestEven:
		return fmt.Errorf("quantizer of %s: elements without a scale round to nearest even, not %s", q.Format, q.Rounding)
	case q.PowerOfTwo && q.Format.Scale != format.F32:
		return fmt.Errorf("quantizer of %s: power-of-two scales are an option of formats with FP32 scales", q.Format)
	case q.Hadamard && q.Format.Block.Cols%hadamardSize != 0:
		return fmt.Errorf("quantizer of %s: the Hadamard transform takes blocks of a multiple of %d elements, not %d", q.Format, hadamardSize, q.Format.Block.Cols)
	}
	return q.checkSearch()
}

// check reports what keeps q from quantizing with w.
func (q Quantizer) check(w With) error {
	if err := q.Validate(); err != nil {
		return err
	}
	switch {
	case q.Rounding == format.Stochastic && w.Random == nil:
		return fmt.Errorf("quantizer of %s: stochastic rounding needs a random stream (With.Random)", q.Format)
	case w.Amax != nil && !(*w.Amax >= 0):
		return fmt.Errorf("quantizer of %s: a given amax is a magnitude, not %g", q.Format, *w.Amax)
	case w.Inverse != nil && !(q.Format.Global && q.Arithmetic != BlockOnly) && !(q.Format.PerTensor() && q.Format.Scale == format.F32):
		return fmt.Errorf("quantizer of %s: a given scale is for formats with one FP32 scale per tensor or a global scale", q.Format)
	case w.Inverse != nil && !(*w.Inverse > 0 && *w.Inverse <= maxFloat32):
		return fmt.Errorf("quantizer of %s: the inverse of a scale is positive and finite, not %g", q.Format, *w.Inverse)
	case w.Threads < 0:
		return fmt.Errorf("quantizer of %s: %d threads", q.Format, w.Threads)
	case w.FirstRow < 0:
		return fmt.Errorf("quantizer of %s: x cannot begin at row %d of a tensor", q.Format, w.FirstRow)
	case w.Scales != nil && !q.Format.ByteScales():
		return fmt.Errorf("quantizer of %s: it has no scales of one byte to hand over", q.Format)
	}
	return nil
}
