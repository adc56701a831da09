package interop

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// ggufBits are the quantizers of llama.cpp's Python package, which has none for NVFP4.
var ggufBits = library{
	name:        "gguf",
	version:     "0.19.0",
	profile:     "ggml",
	script:      "bits_gguf.py",
	interpreter: func(t *testing.T) string { return python(t, "gguf==0.19.0", "numpy==2.4.6") },
	rows: []bitsRow{
		{format: quant.MXFP4, sources: "f32", known: []difference{
			{"a NaN gives its block scale 0; the C code, followed here, ignores it", hasNaN},
			{"the scale of a block with an Inf is undefined", hasInf},
			wrapsBelow,
			log2BelowPower,
		}},
		{format: quant.Q8_0, sources: "f32", known: []difference{
			{"the scale and the codes of a block with a NaN are undefined", hasNaN},
			{"the codes of a block with an Inf are undefined", hasInf},
			inverseOverflows,
		}},
	},
}

// Differences of both the C code and its port to Python.
var (
	wrapsBelow       = difference{"the scale byte wraps around below 2^-125", func(b block) bool { return b.amax > 0 && b.amax < 0x1p-125 }}
	inverseOverflows = difference{"codes are undefined where 127/amax overflows: the scale is 0 there", func(b block) bool {
		d := b.amax / 127
		return d > 0 && 1/d > math.MaxFloat32
	}}
)

// log2BelowPower is the difference of libraries that compute floor(log2 amax) in float32.
var log2BelowPower = difference{"floor(log2 amax) in float32 is one too large just below a power of two", func(b block) bool {
	log2 := float32(math.Log2(float64(b.amax)))
	return b.amax > 0 && math.Floor(float64(log2)) > float64(math.Ilogb(float64(b.amax)))
}}

func hasNaN(b block) bool { return b.nan }
func hasInf(b block) bool { return b.inf }
