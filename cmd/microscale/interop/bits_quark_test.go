package interop

import (
	"math"
	"os/exec"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// quarkBits are AMD Quark's quantizers for weights, which it compiles on first use.
var quarkBits = library{
	name:        "quark",
	version:     "0.13",
	profile:     "quark",
	script:      "bits_quark.py",
	interpreter: compilingTorch(quarkPackages...),
	rows:        []bitsRow{quarkRow(quant.MXFP4), quarkRow(quant.MXFP6E3M2), quarkRow(quant.MXFP6E2M3)},
}

var quarkPackages = []string{"amd-quark==0.13", "ninja==1.13.0", "transformers==5.23.0"}

// compilingTorch is bitsTorch for Quark, which needs a compiler.
func compilingTorch(packages ...string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		if _, err := exec.LookPath("c++"); err != nil {
			skipf(t, "Quark compiles its operations with a C++ compiler: %v", err)
		}
		return bitsTorch(packages...)(t)
	}
}

func quarkRow(f quant.Format) bitsRow {
	even := quant.Quantizer{Format: f, Rule: quant.Even}
	roundsUp := 2 - math.Ldexp(0.5, -even.EvenBits()) // mantissas from here on
	smallest := math.Ldexp(roundsUp, f.Element.MaxExponent()-127)
	return bitsRow{format: f, sources: "f32 bf16", known: []difference{
		special,
		{"an amax that rounds to Inf has scale 2^127", func(b block) bool { return float64(b.amax) >= roundsUp*0x1p127 }},
		{"the scale 2^-127 is stored as 2^-126, of blocks of zeros too", func(b block) bool { return float64(b.amax) < smallest }},
	}}
}
