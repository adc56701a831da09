package conversion

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/verify"
)

// maxNamed is the number of weights that printCounts names.
const maxNamed = 3

// printCounts prints a line for each weight whose count is not zero, such as
// "2 values of l.0.weight are NaN or Inf", and one line for those after maxNamed.
func printCounts(w io.Writer, results []verify.Tensor, prefix string, count func(verify.Tensor) int64,
	line func(t verify.Tensor, one bool) string) error {
	weights := 0
	var last verify.Tensor
	for _, t := range results {
		n := count(t)
		if n == 0 {
			continue
		}
		if weights++; weights > maxNamed {
			last = t
			continue
		}
		if _, err := fmt.Fprintf(w, "%s%s of %s %s\n", prefix, show.Counted(int(n), "value"), show.Printable(t.Name),
			line(t, n == 1)); err != nil {
			return err
		}
	}
	if weights <= maxNamed {
		return nil
	}
	_, err := fmt.Fprintf(w, "%svalues of %s %s\n", prefix, show.Counted(weights-maxNamed, "more weight"), line(last, false))
	return err
}

// printSourceNonFinite prints the weights that hold NaN or Inf in the source.
func printSourceNonFinite(w io.Writer, results []verify.Tensor, prefix, src string) error {
	return printCounts(w, results, prefix, func(t verify.Tensor) int64 { return t.Result.NonFiniteWant },
		func(_ verify.Tensor, one bool) string {
			verb := "are"
			if one {
				verb = "is"
			}
			return verb + " NaN or Inf in " + show.Printable(src)
		})
}

// WarnNonFinite warns of weights that hold NaN or Inf in src, and of those whose finite values decode to NaN or Inf, or are beyond their
// type of GGUF files and decode to other magnitudes. The result is written anyway, and verify rejects it in the latter case. A failure to
// warn is not an error.
func WarnNonFinite(w io.Writer, results []verify.Tensor, src string) {
	const prefix = "microscale: warning: "
	_ = printSourceNonFinite(w, results, prefix, src)
	_ = printCounts(w, results, prefix, func(t verify.Tensor) int64 { return t.Result.NonFinite },
		func(t verify.Tensor, one bool) string {
			verb, decode := "are", "decode"
			if one {
				verb, decode = "is", "decodes"
			}
			if t.Result.NonFiniteWant > 0 { // the scale of their block is NaN
				return fmt.Sprintf("%s finite and %s to NaN or Inf", verb, decode)
			}
			return fmt.Sprintf("%s beyond %s and %s to Inf", verb, t.Format, decode)
		})
	_ = printCounts(w, results, prefix, lost, func(t verify.Tensor, one bool) string {
		if one {
			return fmt.Sprintf("is beyond %s and decodes to another magnitude", t.Format)
		}
		return fmt.Sprintf("are beyond %s and decode to other magnitudes", t.Format)
	})
}

// lost returns the number of values beyond a type of GGUF files, whose encoder does not saturate; 0 if there is a warning of NaN or Inf.
func lost(t verify.Tensor) int64 {
	if f, err := checkpoint.LookupFormat(t.Format); err != nil || f.Scaled() || t.Result.NonFinite > 0 {
		return 0
	}
	return t.Result.Saturated
}
