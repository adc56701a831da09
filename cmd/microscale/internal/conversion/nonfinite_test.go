package conversion

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/verify"
)

// TestWarnNonFinite: values that saturate in a block format are no reason for a warning; those beyond a type of GGUF files are, and
// NaN of the source.
func TestWarnNonFinite(t *testing.T) {
	var b strings.Builder
	WarnNonFinite(&b, []verify.Tensor{
		{Name: "a", Format: "nvfp4", Result: measure.Result{Saturated: 3}},
		{Name: "b", Format: "q6_k", Result: measure.Result{Saturated: 1}},
		{Name: "c", Format: "q3_k", Result: measure.Result{Saturated: 2}},
		{Name: "d", Format: "q6_k", Result: measure.Result{Saturated: 1, NonFinite: 256}},
		{Name: "e", Format: "mxfp8", Result: measure.Result{NonFiniteWant: 1}},
	}, "src")
	const want = `microscale: warning: 1 value of e is NaN or Inf in src
microscale: warning: 256 values of d are beyond q6_k and decode to Inf
microscale: warning: 1 value of b is beyond q6_k and decodes to another magnitude
microscale: warning: 2 values of c are beyond q3_k and decode to other magnitudes
`
	if b.String() != want {
		t.Errorf("got\n%s", &b)
	}
}
