package interop

import (
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// ggmlBits are the quantizers of llama.cpp in C.
var ggmlBits = library{
	name:        "ggml",
	version:     llamaLibraries,
	profile:     "ggml",
	script:      "bits_ggml.py",
	interpreter: func(t *testing.T) string { return python(t, "gguf==0.19.0", "numpy==2.4.6") },
	arguments: func(t *testing.T) []string {
		return []string{filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")}
	},
	rows: []bitsRow{
		{format: quant.MXFP4, sources: "f32", known: []difference{
			wrapsBelow,
			log2BelowPower,
		}},
		{format: quant.NVFP4, sources: "f32", known: []difference{
			equalDistances,
		}},
		{format: quant.Q8_0, sources: "f32", known: []difference{
			inverseOverflows,
			{"codes of NaN are undefined", hasNaN},
			{"codes of a block with an Inf are undefined", hasInf},
		}},
	},
}

// equalDistances is of libraries without a global scale that compare the distances to all codes.
var equalDistances = difference{"distances to the codes are equal in float32 for elements from 2^24 times the largest scale on: the " +
	"first code wins", func(b block) bool {
	return b.amax >= 448*0x1p24
}}
