package quant

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// A Quantizer is a block format and a behavior. It holds no state and may be
// copied, and compared by ==. The zero value of every field but Format
// behaves as Transformer Engine does.
type Quantizer struct {
	Format Format

	Rule ScaleRule // E8M0 scales
	// RatioCeil in exact arithmetic, not on float32(amax·float32(1/max)); they differ for one amax, the next above max·2^-127, and for INT8
	// for one mantissa of every binade
	ExactRatio   bool
	EvenMantissa int        // mantissa bits that Even rounds to; 0: the element's
	Arithmetic   Arithmetic // FP32 and E4M3 scales
	PowerOfTwo   bool       // FP32 scales are powers of two, rounded away from saturation
	NonFinite    NonFinite  // scales of blocks with NaN or Inf
	// SmallestDivisor divides elements under the smallest E8M0 scale, 2^-127, which is a
	// subnormal float32: 0 for the scale itself, 2^-126 (torchao's floor, even and ceil) or
	// 1 (torchao's rceil: all elements become zeros). They decode as multiples of 2^-127.
	SmallestDivisor float32
	UnitZeroScale   bool    // the E8M0 scale of a block of zeros is 1, and not 2^-127
	Search          Search  // of the scale of a block, among the neighbors of the scale by the fields above
	TopScale        float32 // E4M3 scale of a block with the amax of the tensor, which the global scale provides for; 0: 448

	Rounding     format.Rounding // elements
	ElementNaN   format.NaN      // the code of a NaN element
	NegativeZero NegativeZero    // elements of -0

	Hadamard bool // transform each 16 elements along the blocks before scaling (see Hadamard16)
}

// With holds the options of one quantization. The zero value sets none.
type With struct {
	Amax *float32 // amax of the whole tensor, instead of that of x: ranks, fused siblings, calibration, tiles
	NaN  bool     // with Amax: the whole tensor has a NaN, in x or elsewhere
	// inverse of the decode scale of the whole tensor, for formats that have one: delayed scaling, stored scales of activations
	Inverse *float32
	// Importance weighs the squared errors that LeastSquares minimizes, by position along the stored rows: of
	// a weight, the mean square of each input. Finite and not negative; nil: all alike. Other searches ignore it.
	Importance []float32
	// Mean, with Importance, is the mean of each input. LeastSquares then minimizes the mean square of what the errors of a
	// row add up to in the output, as if the inputs were independent, one block after another (see LeastSquares). Finite, of
	// formats whose blocks are within rows; nil: zeros
	Mean []float32

	Random   *Stream  // random bits; stochastic rounding requires them
	FirstRow int      // the row of the tensor where x, a tile of it, begins: random bits follow the element
	Columns  *Columns // the columns of the tensor that x holds; nil: all
	Threads  int      // goroutines; 0: one per processor. Results do not depend on it
	Into     *Tensor  // destination, of the same format, direction and shape; it is returned, and shares no memory with x; nil: a new tensor

	// Scales, if set, is called once for each stored row, with its one-byte scales, once all
	// scales are known. Rows that share a block get the same scale. Several goroutines may call it
	// at a time. It must not keep codes.
	Scales func(row int, codes []byte)
}

// Columns selects columns of a wider tensor, in order: those that a rank of a job holds. Random bits
// follow the element of the wider tensor.
type Columns struct {
	Of     int      // columns of the wider tensor
	Ranges [][2]int // the columns from [0] to [1]-1
}

// Rowwise quantizes x along its rows. The result holds the amax of x, or With.Amax, and
// shares no memory with x. Zeros pad the last block of a row. Rowwise returns an error if
// the quantizer, x or With.Into is not valid (see their Validate), if With.Into shares memory
// with x, or if stochastic rounding has no random bits. On error, With.Into is unchanged.
func (q Quantizer) Rowwise(x tensor.Dense, with With) (*Tensor, error) {
	return quantizeOne(q, x, Rowwise, with)
}

// RowwiseBF16 is Rowwise of a matrix in BF16, without a copy in float32.
func (q Quantizer) RowwiseBF16(x tensor.BF16, with With) (*Tensor, error) {
	return quantizeOne(q, x, Rowwise, with)
}

// Columnwise quantizes x down its columns, from the values of x and not from a rowwise
// copy. The result is stored transposed: its stored rows are the columns of x, so that blocks
// are contiguous.
func (q Quantizer) Columnwise(x tensor.Dense, with With) (*Tensor, error) {
	return quantizeOne(q, x, Columnwise, with)
}

// ColumnwiseBF16 is Columnwise of a matrix in BF16.
func (q Quantizer) ColumnwiseBF16(x tensor.BF16, with With) (*Tensor, error) {
	return quantizeOne(q, x, Columnwise, with)
}

// Validate returns an error if a field of q has an unknown value, or one that another field excludes.
func (q Quantizer) Validate() error {
	if err := q.Format.Validate(); err != nil {
		return err
	}
	switch {
	case int(q.Rule) >= len(scaleRules):
		return fmt.Errorf("quantizer of %s: unknown scale rule %d", q.Format, q.Rule)
	case int(q.Arithmetic) >= len(arithmetics):
		return fmt.Errorf("quantizer of %s: unknown arithmetic %d", q.Format, q.Arithmetic)
	case q.SmallestDivisor != 0 && q.SmallestDivisor != 0x1p-126 && q.SmallestDivisor != 1:
		return fmt.Errorf("quantizer of %s: got SmallestDivisor %g, want 0, 2^-126 or 1", q.Format, q.SmallestDivisor)
	case q.NonFinite > PoisonZero:
		return fmt.Errorf("quantizer of %s: unknown NonFinite %d", q.Format, q.NonFinite)
	case q.NegativeZero > DropNegativeZero:
		return fmt.Errorf("quantizer of %s: unknown NegativeZero %d", q.Format, q.NegativeZero)
	case q.Rounding > format.Stochastic:
		return fmt.Errorf("quantizer of %s: unknown Rounding %d", q.Format, q.Rounding)
	case q.ElementNaN > format.OppositeZero:
		return fmt.Errorf("quantizer of %s: unknown ElementNaN %d", q.Format, q.ElementNaN)
	case q.EvenMantissa < 0 || mantissaBits <= q.EvenMantissa:
		return fmt.Errorf("quantizer of %s: got EvenMantissa %d, want 0 to %d", q.Format, q.EvenMantissa, mantissaBits-1)
	case !q.Format.Scaled() && q.Rounding != format.NearestEven:
		return fmt.Errorf("quantizer of %s: elements without a scale round to nearest even, not %s", q.Format, q.Rounding)
	case q.PowerOfTwo && q.Format.Scale != format.F32:
		return fmt.Errorf("quantizer of %s: power-of-two scales are an option of formats with FP32 scales", q.Format)
	case q.Hadamard && q.Format.Block.Cols%hadamardSize != 0:
		return fmt.Errorf("quantizer of %s: the Hadamard transform: got blocks of %d elements, want a multiple of %d", q.Format,
			q.Format.Block.Cols, hadamardSize)
	}
	return q.checkSearch()
}

// check returns an error if q cannot quantize with w.
func (q Quantizer) check(w With) error {
	if err := q.Validate(); err != nil {
		return err
	}
	switch {
	case q.Rounding == format.Stochastic && w.Random == nil:
		return fmt.Errorf("quantizer of %s: stochastic rounding needs a random stream (With.Random)", q.Format)
	case w.Amax != nil && !(*w.Amax >= 0):
		return fmt.Errorf("quantizer of %s: got With.Amax %g, want a magnitude", q.Format, *w.Amax)
	case w.Inverse != nil && !(q.Format.Global && !q.Arithmetic.FixesGlobal()) && !(q.Format.PerTensor() && q.Format.Scale == format.F32):
		return fmt.Errorf("quantizer of %s: With.Inverse needs a format with one FP32 scale per tensor or a global scale", q.Format)
	case w.Inverse != nil && !(*w.Inverse > 0 && *w.Inverse <= maxFloat32):
		return fmt.Errorf("quantizer of %s: got With.Inverse %g, want a positive finite number", q.Format, *w.Inverse)
	case slices.ContainsFunc(w.Importance, func(v float32) bool { return !(v >= 0 && v <= maxFloat32) }):
		return fmt.Errorf("quantizer of %s: With.Importance has a value that is negative or not finite", q.Format)
	case w.Mean != nil && (len(w.Mean) != len(w.Importance) || q.Format.Block.Rows != 1):
		return fmt.Errorf("quantizer of %s: With.Mean: got %d values with %d of With.Importance, want as many, and blocks within rows", q.Format,
			len(w.Mean), len(w.Importance))
	case slices.ContainsFunc(w.Mean, func(v float32) bool { return v-v != 0 }):
		return fmt.Errorf("quantizer of %s: With.Mean has a value that is not finite", q.Format)
	case w.Threads < 0:
		return fmt.Errorf("quantizer of %s: got %d threads, want 0 or more", q.Format, w.Threads)
	case w.Columns != nil && !w.Columns.valid():
		return fmt.Errorf("quantizer of %s: With.Columns: got %v, want runs within the columns of the tensor", q.Format, *w.Columns)
	case w.FirstRow < 0:
		return fmt.Errorf("quantizer of %s: got first row %d, want 0 or more", q.Format, w.FirstRow)
	case w.Scales != nil && !q.Format.ByteScales():
		return fmt.Errorf("quantizer of %s: With.Scales needs a format with one-byte scales", q.Format)
	}
	return nil
}
