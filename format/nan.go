package format

import "github.com/microscale-go/microscale/internal/naming"

// NaN selects the code of a NaN. The text form is "canonical", "keep-sign", "unchecked"
// or "opposite-zero".
type NaN uint8

// The NaN policies.
const (
	Canonical    NaN = iota // the NaN of all ones, positive; +Max in formats without NaN; PTX cvt
	KeepSign                // as Canonical, with the sign of the input; ml_dtypes' and PyTorch's fn casts
	Unchecked               // in formats without NaN, the bits as if they were finite; torchao's FP4 and FP6
	OppositeZero            // in formats without NaN, the zero of opposite sign; ml_dtypes' FP4 and FP6
)

var nanNames = []string{"canonical", "keep-sign", "unchecked", "opposite-zero"}

// String returns the text form, or "NaN(N)" for a value without a name.
func (n NaN) String() string { return naming.String("NaN", nanNames, n) }

// MarshalText returns the text form. It returns an error for a value without a name.
func (n NaN) MarshalText() ([]byte, error) { return naming.Marshal("NaN policy", nanNames, n) }

// UnmarshalText sets n from the text form, ignoring case. On error, n is unchanged.
func (n *NaN) UnmarshalText(text []byte) error {
	return naming.Unmarshal("NaN policy", nanNames, n, text)
}
