package calibration

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/quant"
)

// A Method chooses scales and codes.
type Method uint8

const (
	Nearest Method = iota // without statistics
	Search                // scales, by the mean squares and the means of the inputs
	Solve                 // scales by the mean squares, codes by GPTQ
)

// methods are the names, as flags have them.
var methods = []string{Nearest: "nearest", Search: "search", Solve: "gptq"}

func (m Method) String() string { return methods[m] }

// MovesErrors reports whether the method chooses codes that make up for each other's errors, so that they
// are not the nearest.
func (m Method) MovesErrors() bool { return m == Solve }

// Methods returns all methods.
func Methods() []Method { return []Method{Nearest, Search, Solve} }

// Lookup returns the method of a name.
func Lookup(name string) (Method, error) {
	for m, n := range methods {
		if strings.EqualFold(n, name) {
			return Method(m), nil
		}
	}
	return 0, fmt.Errorf("unknown method %q: use one of %s", name, strings.Join(methods, ", "))
}

// Supports reports whether the method quantizes weights to a format: one with a scale of a byte or in BF16 for each
// block of a row. Search also supports types of GGUF files, such as q4_k, whose encoders search themselves (checkpoint.LookupFormat).
func (m Method) Supports(f quant.Format) bool {
	return m == Nearest || m == Search && ofGGUF(f) || f.Scaled() && f.Scale.StoredBits() <= 16 && f.Block.Rows == 1
}

// ofGGUF reports whether a format is a type of GGUF files alone: FP32 values in blocks.
func ofGGUF(f quant.Format) bool { return !f.Scaled() && f.Block.Cols > 0 }

// Quantizer returns q as the method quantizes with it: a search of scales by the least squares of errors, whose With.Importance and
// With.Mean are the Square and the Mean of an Input. In a format with a global scale, that of the amax is not the largest, so that the
// search may take larger ones. It returns an error for a quantizer that the method does not support.
func (m Method) Quantizer(q quant.Quantizer) (quant.Quantizer, error) {
	if m == Nearest || m == Search && ofGGUF(q.Format) {
		return q, nil
	}
	if !m.Supports(q.Format) {
		var names []string
		for _, f := range quant.Formats() {
			if m.Supports(f) {
				names = append(names, f.Name)
			}
		}
		return q, fmt.Errorf("method %s supports formats with a scale of one byte or in BF16 for each block of a row (%s): got %s", m,
			strings.Join(names, ", "), q.Format)
	}
	if q.Search != quant.NoSearch && q.Search != quant.LeastSquares {
		return q, fmt.Errorf("method %s searches scales by %s: omit the search %s", m, quant.LeastSquares, q.Search)
	}
	q.Search = quant.LeastSquares
	if q.Format.Global && q.TopScale == 0 && !q.Arithmetic.FixesGlobal() {
		q.TopScale = quant.FourOverSixTop
	}
	return q, q.Validate()
}

// NormsDistilled is in the text of a method where the weights of norms were trained with the scales.
const NormsDistilled = "scales and norms distilled"

// Trained reports whether a method, by its text in the metadata of a checkpoint, may have changed a tensor that is not quantized: the
// weight of a norm that was trained.
func Trained(method, name string, shape []int64) bool {
	return strings.Contains(method, NormsDistilled) && len(shape) == 1 && strings.HasSuffix(name, "norm.weight")
}
