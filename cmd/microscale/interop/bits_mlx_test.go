package interop

import (
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// MLX rounds scales up since 0.32.4. The package for Linux runs on the CPU. Its Metal kernels
// cannot run here; according to their source, they round ties of FP4 to even, keep -0, and give
// a block of zeros the smallest scale.
var (
	mlxBits      = mlxLibrary("mlx", "0.32.4")
	mlxOlderBits = mlxLibrary("mlx-0.31", "0.31.2", roundedLogarithm)
)

func mlxLibrary(profile, version string, known ...func(quant.Format) difference) library {
	l := library{
		name:        profile,
		version:     version,
		profile:     profile,
		script:      "bits_mlx.py",
		interpreter: func(t *testing.T) string { return python(t, "mlx[cpu]=="+version, "numpy==2.4.6") },
	}
	for _, f := range []quant.Format{quant.MXFP4, quant.MXFP8, quant.NVFP4} {
		row := bitsRow{format: f, sources: "f32 bf16"}
		if f.Scale == format.E4M3 {
			row.known = append(row.known, equalDistances)
		} else {
			for _, k := range slices.Concat([]func(quant.Format) difference{wrappedScale}, known) {
				row.known = append(row.known, k(f))
			}
		}
		row.known = append(row.known, special)
		l.rows = append(l.rows, row)
	}
	return l
}

func wrappedScale(f quant.Format) difference {
	return difference{"the scale byte wraps around below 2^-127", func(b block) bool {
		return b.amax > 0 && float64(b.amax/f.Element.Max()) < 0x1p-126
	}}
}

// roundedLogarithm: the older version computes round(log2(amax/max)) in the dtype of the
// source. The result may be off if the logarithm is near a tie.
func roundedLogarithm(f quant.Format) difference {
	return difference{"the logarithm is rounded to the dtype of the source", func(b block) bool {
		log2 := math.Log2(float64(b.amax) / float64(f.Element.Max()))
		mantissa := 23
		if b.source == "bf16" {
			mantissa = 7
		}
		slack := math.Ldexp(1, math.Ilogb(log2)-mantissa) + math.Ldexp(1, -mantissa)
		return b.amax > 0 && math.Abs(math.Abs(log2-math.Round(log2))-0.5) <= slack
	}}
}
