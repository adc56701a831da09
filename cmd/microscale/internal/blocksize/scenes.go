package blocksize

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// castAmax is the largest value of the picture in [ZH] of docs/errata.md: a direct cast to
// E4M3 leaves an error of 352 = 800 − 448.
const castAmax = 800

// DirectCast compares a cast of normal values, stretched to an amax of 800, with casts after
// one scale for the tensor, and with blocks.
func DirectCast(rows int) ([]Result, error) {
	x := gaussian.Sample(rows, 1)
	amax := float32(0)
	for _, v := range x.Data {
		amax = max(amax, float32(math.Abs(float64(v))))
	}
	for i := range x.Data {
		x.Data[i] = x.Data[i] / amax * castAmax
	}
	return each(x, "amax 800", []Case{
		{Format: "e4m3 cast", Rule: "-", Cast: format.E4M3},
		{Format: "e5m2 cast", Rule: "-", Cast: format.E5M2},
		one(quant.FP8Tensor), one(quant.FP8Vec128), one(quant.MXFP8),
	})
}

// outlier is the magnitude of the one outlier of [MF] of docs/errata.md.
const outlier = 5000

// OneOutlier measures formats on normal values, one of which is 5000: what it does to the
// others of its tensor, row or block. The mean SQNR over blocks shows it, and the share of
// elements that become zero; the SQNR of the tensor is the outlier's.
func OneOutlier(rows int) ([]Result, error) {
	x := gaussian.Sample(rows, 1)
	for i := range x.Data {
		x.Data[i] *= 0.1
	}
	x.Data[len(x.Data)/2+7] = outlier
	return each(x, "outlier 5000", []Case{
		one(quant.FP8Tensor), one(quant.FP8Row), one(quant.FP8Vec128), one(quant.MXFP8), one(quant.MXFP6E2M3), one(quant.MXFP4), one(quant.NVFP4),
		one(quant.MXINT8),
	})
}

// one returns the case of a format with its own blocks and default rule.
func one(f quant.Format) Case {
	c := Case{Format: f.Name, Rule: "-", Block: f.Block.Cols, Quantizer: quant.Quantizer{Format: f}}
	if f.Scale == format.E8M0 {
		c.Rule = quant.RatioCeil.String()
	}
	return c
}

func each(x tensor.Dense, name string, cases []Case) ([]Result, error) {
	var results []Result
	for _, c := range cases {
		r, err := c.measure(x)
		if err != nil {
			return nil, err
		}
		r.Case, r.Distribution = c, name
		results = append(results, r)
	}
	return results, nil
}
