package interop

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// microxcalingBits is the Python path of microxcaling. It is in no package registry, so the
// test fetches its last commit with git.
var microxcalingBits = library{
	name:        "microxcaling",
	version:     microxcalingCommit + " with PyTorch 2.15.0",
	profile:     "microxcaling",
	script:      "bits_microxcaling.py",
	interpreter: bitsTorch("packaging==26.3"),
	arguments:   func(t *testing.T) []string { return []string{microxcaling(t)} },
	rows: []bitsRow{
		{format: quant.MXFP8, sources: "f32", known: []difference{inFloat32(quant.MXFP8)}},
		{format: quant.MXFP8E5M2, sources: "f32", known: []difference{inFloat32(quant.MXFP8E5M2)}},
		{format: quant.MXFP6E3M2, sources: "f32", known: []difference{inFloat32(quant.MXFP6E3M2)}},
		{format: quant.MXFP6E2M3, sources: "f32", known: []difference{inFloat32(quant.MXFP6E2M3)}},
		{format: quant.MXFP4, sources: "f32", known: []difference{inFloat32(quant.MXFP4)}},
		{format: quant.MXINT8, sources: "f32", known: []difference{integerZeros, inFloat32(quant.MXINT8)}},
		{format: quant.MXFP8, sources: "bf16", known: []difference{inBF16(quant.MXFP8)}},
		{format: quant.MXFP4, sources: "bf16", known: []difference{inBF16(quant.MXFP4)}},
		{format: quant.MXINT8, sources: "bf16", known: []difference{integerZeros, inBF16(quant.MXINT8)}},
	},
}

const microxcalingCommit = "7bc41952de394f5cc5e782baf132e7c7542eb4e4"

// microxcaling returns a directory with the sources of microxcaling.
func microxcaling(t *testing.T) string {
	t.Helper()
	return environment(t, "microxcaling-"+microxcalingCommit[:12], func(dir string) (string, error) {
		for _, arguments := range [][]string{
			{"init", "--quiet", dir},
			{"-C", dir, "fetch", "--quiet", "--depth=1", "https://github.com/microsoft/microxcaling", microxcalingCommit},
			{"-C", dir, "checkout", "--quiet", microxcalingCommit},
		} {
			if out, err := command(time.Minute, "git", arguments...); err != nil {
				return "git: " + lastLine(out, err), err
			}
		}
		return "", os.RemoveAll(dir + "/.git")
	})
}

var integerZeros = difference{"a block of zeros has the scale of 2^-126, which is 2^-126 for integers", func(b block) bool {
	return b.amax == 0 && !b.nan
}}

func inFloat32(f quant.Format) difference {
	return difference{"floor(log2 x) and x+1/2 are rounded to float32", func(b block) bool {
		return roundsUp(b, f, func(x float64) float64 { return float64(float32(x)) })
	}}
}

func inBF16(f quant.Format) difference {
	return difference{"a BF16 tensor is computed with in BF16: floor(log2 x) and x+1/2", func(b block) bool {
		return roundsUp(b, f, roundBF16)
	}}
}

// roundsUp reports where microxcaling differs from exact arithmetic when it computes in a
// dtype: a logarithm that rounds up to an integer raises the exponent of the block or of an
// element, and an element just below half a step rounds up when one half is added.
func roundsUp(b block, f quant.Format, round func(float64) float64) bool {
	exponent, raised := log2In(round, float64(b.amax))
	if raised {
		return true
	}
	scale := max(exponent-f.Element.MaxExponent(), -127)
	for _, x := range b.elements {
		y, own, mantissa := math.Abs(math.Ldexp(float64(x), -scale)), 0, 6 // of an integer
		if !f.Element.Integer {
			if own, raised = log2In(round, y); raised {
				return true
			}
			own, mantissa = max(own, 1-f.Element.Bias), f.Element.Mantissa
		}
		steps := math.Ldexp(y, mantissa-own)
		if math.Floor(round(steps+0.5)) != math.Floor(steps+0.5) {
			return true
		}
	}
	return false
}

// log2In returns floor(log2 x), and whether rounding the logarithm increases it.
func log2In(round func(float64) float64, x float64) (exponent int, raised bool) {
	if x == 0 || math.IsInf(x, 0) {
		return 0, false
	}
	exponent = math.Ilogb(x)
	return exponent, math.Floor(round(math.Log2(x))) != float64(exponent)
}

// roundBF16 rounds to eight significant bits, ties to even.
func roundBF16(x float64) float64 {
	data := make([]byte, 2)
	if err := tensor.ToBytes(data, []float32{float32(x)}, quant.BF16.Element); err != nil {
		panic(err) // the two sizes agree
	}
	return float64(math.Float32frombits(uint32(data[1])<<24 | uint32(data[0])<<16))
}
