package safetensors

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/limits"
)

// A Dtype is the element type of a tensor. The zero Dtype is invalid. The text form is the name
// in headers, such as "BF16" or "F8_E4M3".
//
// The constants are in the reference writer's order of increasing alignment: a [Layout] puts
// larger ones first.
type Dtype uint8

// The dtypes that this module's formats use. F8E4M3 is OCP's E4M3, which has no infinities.
// [Dtypes] and UnmarshalText also return the others: F6_E2M3, F6_E3M2, F8_E4M3FNUZ, F8_E5M2FNUZ,
// BOOL, U16, U64 and C64.
const (
	boolean Dtype = iota + 1
	F4
	f6E2M3
	f6E3M2
	U8
	I8
	F8E5M2
	F8E4M3
	F8E8M0
	f8E4M3FNUZ
	f8E5M2FNUZ
	I16
	u16
	F16
	BF16
	I32
	U32
	F32
	c64
	F64
	I64
	u64
)

// dtypes has a row for each Dtype.
var dtypes = [...]struct {
	name   string
	bits   int            // of an element
	scalar *format.Scalar // format of the values; nil for integers, C64 and F64
	torch  string         // what config.json calls the dtype of a model of such values; "": models are not of it
}{
	boolean:    {"BOOL", 8, nil, ""},
	F4:         {"F4", 4, format.E2M1, ""},
	f6E2M3:     {"F6_E2M3", 6, format.E2M3, ""},
	f6E3M2:     {"F6_E3M2", 6, format.E3M2, ""},
	U8:         {"U8", 8, nil, ""},
	I8:         {"I8", 8, nil, ""},
	F8E5M2:     {"F8_E5M2", 8, format.E5M2, ""},
	F8E4M3:     {"F8_E4M3", 8, format.E4M3, ""},
	F8E8M0:     {"F8_E8M0", 8, format.E8M0, ""},
	f8E4M3FNUZ: {"F8_E4M3FNUZ", 8, format.E4M3FNUZ, ""},
	f8E5M2FNUZ: {"F8_E5M2FNUZ", 8, format.E5M2FNUZ, ""},
	I16:        {"I16", 16, nil, ""},
	u16:        {"U16", 16, nil, ""},
	F16:        {"F16", 16, format.FP16, "float16"},
	BF16:       {"BF16", 16, format.BF16, "bfloat16"},
	I32:        {"I32", 32, nil, ""},
	U32:        {"U32", 32, nil, ""},
	F32:        {"F32", 32, format.F32, "float32"},
	c64:        {"C64", 64, nil, ""},
	F64:        {"F64", 64, nil, ""},
	I64:        {"I64", 64, nil, ""},
	u64:        {"U64", 64, nil, ""},
}

// Dtypes returns every dtype in the order of increasing alignment.
func Dtypes() []Dtype {
	all := make([]Dtype, 0, len(dtypes)-1)
	for d := boolean; d.valid(); d++ {
		all = append(all, d)
	}
	return all
}

// parseDtype returns the dtype of a name.
func parseDtype(name string) (Dtype, error) {
	for d := boolean; d.valid(); d++ {
		if dtypes[d].name == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %s (known: %s)", limits.Quote(name), dtypeNames())
}

func dtypeNames() string {
	names := make([]string, 0, len(dtypes))
	for _, d := range Dtypes() {
		names = append(names, d.String())
	}
	return strings.Join(names, " ")
}

func (d Dtype) valid() bool { return d != 0 && int(d) < len(dtypes) }

// String returns the dtype's name in a header.
func (d Dtype) String() string {
	if !d.valid() {
		return fmt.Sprintf("Dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// MarshalText returns the dtype's name in a header. It returns an error for an invalid dtype.
func (d Dtype) MarshalText() ([]byte, error) {
	if !d.valid() {
		return nil, fmt.Errorf("invalid dtype: got %d, want 1 to %d", uint8(d), len(dtypes)-1)
	}
	return []byte(d.String()), nil
}

// UnmarshalText sets d to the dtype of a name as headers spell it, such as "BF16" or "F8_E4M3".
// Case matters. On error, d is unchanged.
func (d *Dtype) UnmarshalText(text []byte) error {
	parsed, err := parseDtype(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

// Bits returns the size of one element in bits, 0 for a value that is no dtype.
// It is less than 8 for F4, f6E2M3 and f6E3M2.
func (d Dtype) Bits() int {
	if !d.valid() {
		return 0
	}
	return dtypes[d].bits
}

// Dense returns the format of the values of a dtype that models compute with, and to which quantized weights are decoded: BF16, F16 or
// F32. ok is false for the others.
func (d Dtype) Dense() (f *format.Scalar, ok bool) {
	if !d.valid() || dtypes[d].torch == "" {
		return nil, false
	}
	return dtypes[d].scalar, true
}

// Torch returns the name in config.json of a dtype for which Dense is true, and "" for others.
func (d Dtype) Torch() string {
	if !d.valid() {
		return ""
	}
	return dtypes[d].torch
}

// size returns the bytes of a tensor, product(shape)·bits/8, or the problem if it is invalid.
// Dimensions must not be negative. The product is computed from the left in 64 bits, as in the
// reference reader: a zero dimension prevents overflow only after it.
func (d Dtype) size(shape []int64) (n int64, problem string) {
	total := uint64(1)
	for i := range len(shape) + 1 {
		factor := uint64(d.Bits())
		if i < len(shape) {
			factor = uint64(shape[i])
		}
		hi, lo := bits.Mul64(total, factor)
		if hi != 0 {
			return 0, fmt.Sprintf("shape %v of %s overflows 64 bits", shortShape(shape), d)
		}
		total = lo
	}
	if total%8 != 0 {
		return 0, fmt.Sprintf("shape %v of %s is %d bits, not a whole number of bytes", shortShape(shape), d, total)
	}
	return int64(total / 8), ""
}

// shortShape prints a shape, or the start of one that would fill the line.
func shortShape(shape []int64) string {
	const maxDims = 8
	if len(shape) <= maxDims {
		return fmt.Sprint(shape)
	}
	s := fmt.Sprint(shape[:maxDims])
	return fmt.Sprintf("%s …] (%d dimensions)", s[:len(s)-1], len(shape))
}
