package lint

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// scaleRules are about the values of scales.
var scaleRules = []Rule{
	{
		ID: "L08", Name: "global-direction", Severity: Error, Needs: Scalars, check: directions,
		What:   "by its magnitude a global scale is stored in the other direction: a divisor for a scale, or a scale for a divisor",
		Why:    "the values of the weight are too large or too small by the square of the scale",
		Remedy: "convert again with the tool that wrote it, or quantize again",
		Source: "modular#6600",
	},
	{
		ID: "L32", Name: "scale-nonfinite", Severity: Error, Needs: Scales, check: badScales,
		What:   "a scale of a block is NaN, Inf or negative",
		Why:    "the block is NaN, or programs disagree about its sign",
		Remedy: "quantize again",
		Source: "vllm#53709",
	},
	{
		ID: "L33", Name: "scale-subnormal", Severity: Warning, Needs: Scales, check: smallScales,
		What:   "more than half of the scales of a weight that are not 0 are subnormal E4M3 numbers",
		Why:    "they have three bits or fewer, so that the weight is less accurate than its format allows",
		Remedy: "quantize again with a global scale, or in mxfp4",
		Source: "mlx#3022",
	},
	{
		ID: "L66", Name: "scales-zero", Severity: Warning, Needs: Scales, check: zeroScales,
		What:   "every scale of a weight is 0, or the least number of its format",
		Why:    "all values of the weight are 0 or next to it",
		Remedy: "compare it with the original, and quantize again if that has values",
		Source: "the formats of scales",
	},
	{
		ID: "L34", Name: "swizzled", Severity: Error, check: swizzledScales,
		explains: []string{structure, "set-format"}, explainsWhole: []string{"none-quantized"},
		What:   "scales are in tiles of 128×4, by their padded size, without a declaration",
		Why:    "clients read them row by row",
		Remedy: "store them row by row (`microscale layout` converts them)",
		Source: "modular#6600",
	},
}

// The largest magnitudes of a weight that are taken for sound if its global scale is read in one direction, and for unsound: those
// of language models are below 1,000.
const (
	soundAmax   = 1 << 10
	unsoundAmax = 1 << 14
)

// directions computes the largest magnitude of a weight from its scales where a global scale is above 1, as it is in both cases: no
// library writes such a scale for weights of usual size.
func directions(c *checker) {
	for _, w := range c.Weights {
		t, ok := w.Part(checkpoint.Scales)
		if !ok || !w.Format.Global || w.Global <= 1 || t.Dtype != safetensors.F8E4M3 || !valid(w.Global) {
			continue
		}
		count, err := histogram(c, t)
		if err != nil {
			c.err = err
			return
		}
		largest := 0.0
		for code, n := range count {
			if v := float64(format.E4M3.Decode(uint32(code))); n > 0 && v > largest {
				largest = v
			}
		}
		code := float64(w.Format.Element.Max())
		as, other := largest*code*float64(w.Global), largest*code/float64(w.Global)
		if as > unsoundAmax && other > 0 && other < soundAmax {
			c.report(w.Name, "its largest magnitude would be %.3g, and %.3g if the global scale %g were its inverse", as, other, w.Global)
		}
	}
}

// badScales reports scales that are no numbers, or negative.
func badScales(c *checker) {
	c.eachScales(func(w *checkpoint.Weight, n scaleCounts) {
		if n.bad > 0 {
			c.report(w.Name, "%d of %d scales are NaN, Inf or negative", n.bad, n.all)
		}
	})
}

// smallScales reports subnormal scales.
func smallScales(c *checker) {
	c.eachScales(func(w *checkpoint.Weight, n scaleCounts) {
		if w.Format.Scale == format.E4M3 && 2*n.subnormal > n.positive {
			c.report(w.Name, "%d of %d scales are subnormal", n.subnormal, n.positive)
		}
	})
}

// zeroScales reports weights whose scales are all zero, or the least number of their format.
func zeroScales(c *checker) {
	c.eachScales(func(w *checkpoint.Weight, n scaleCounts) {
		if n.all > 0 && n.least == n.all {
			c.report(w.Name, "all %d scales are 0 or the least number of their format", n.all)
		}
	})
}

// scaleCounts counts the block scales of a weight. least are those that are 0, or a power of two with the exponent 0.
type scaleCounts struct{ all, positive, subnormal, bad, least int64 }

// eachScales calls f with the counts of the scales of quantized weights, which are read once for all rules: all with Options.Scales, and
// otherwise those of fewScales.
func (c *checker) eachScales(f func(w *checkpoint.Weight, n scaleCounts)) {
	for _, w := range c.Weights {
		t, ok := w.Part(checkpoint.Scales)
		if !ok || !positiveScales(w) || !c.blocks && !fewScales(w, t) {
			continue
		}
		n, ok := c.scales[t.Name]
		if !ok {
			var err error
			if n, err = c.readScales(w, t); err != nil {
				c.err = err
				return
			}
			c.scales[t.Name] = n
		}
		f(w, n)
	}
}

// fewScales reports whether a weight has one scale for each of its matrices, of which experts in one tensor have several, or one for each
// row, in a file on disk: a read from a server costs more than the few bytes.
func fewScales(w *checkpoint.Weight, t hf.Tensor) bool {
	rows, _ := w.Matrix()
	matrices := 1
	for _, n := range w.Shape[:max(0, len(w.Shape)-2)] {
		matrices *= int(n)
	}
	n := t.Elements()
	return n <= int64(matrices) || n == int64(rows) && t.Shard.File.Info() != nil
}

// positiveScales reports whether the scales of a weight are to be positive: those of MLX's integers, which have biases, have any sign.
func positiveScales(w *checkpoint.Weight) bool {
	biases, ok := w.Part(checkpoint.Biases)
	_, affine := biases.Dtype.Dense()
	return w.Quantized() || w.Decoded() && !(ok && affine)
}

// readScales counts scales of one byte, or values.
func (c *checker) readScales(w *checkpoint.Weight, t hf.Tensor) (n scaleCounts, err error) {
	scale := w.Format.Scale
	if f, err := quant.Lookup(c.Scheme); err == nil && c.config.method == "fp_quant" {
		scale = f.Scale
	}
	if t.Dtype == safetensors.F8E8M0 {
		scale = format.E8M0
	}
	dense, ok := t.Dtype.Dense()
	switch {
	case !ok && (scale == nil || scale.StoredBits() != 8): // of a type that is decoded as it is read
		return n, nil
	case !ok:
		count, err := histogram(c, t)
		if err != nil {
			return n, err
		}
		return countScales(count, scale), nil
	}
	size := dense.StoredBits() / 8
	buffer := make([]byte, min(t.Bytes(), 1<<20))
	for at := int64(0); at < t.Bytes(); at += int64(len(buffer)) {
		buffer = buffer[:min(int64(len(buffer)), t.Bytes()-at)]
		if err := cmp.Or(c.ctx.Err(), t.Shard.File.ReadTensorAt(buffer, t.TensorInfo, at)); err != nil {
			return n, err
		}
		for raw := buffer; len(raw) > 0; raw = raw[size:] {
			code := [4]byte{}
			copy(code[:], raw[:size])
			n.add(float64(dense.Decode(binary.LittleEndian.Uint32(code[:]))), 1)
		}
	}
	return n, nil
}

// add counts scales of a value.
func (n *scaleCounts) add(v float64, many int64) {
	n.all += many
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0) || v < 0:
		n.bad += many
	case v > 0:
		n.positive += many
	default:
		n.least += many
	}
}

// countScales counts scales of a format, of which count has the number of each code.
func countScales(count *[256]int64, f *format.Scalar) (n scaleCounts) {
	for code, many := range count {
		v := float64(f.Decode(uint32(code)))
		if n.add(v, many); v > 0 && code>>f.Mantissa == 0 { // no exponent
			n.subnormal += many
			if f == format.E8M0 && code == 0 {
				n.least += many
			}
		}
	}
	return n
}

// swizzledScales: the tensor has the elements of whole tiles of 128×4, and more than the blocks of the codes.
func swizzledScales(c *checker) {
	for _, p := range c.Problems {
		t, ok := c.Source.Lookup(p.Tensor)
		if !ok || t.Dtype.Bits() != 8 || len(t.Shape) == 0 {
			continue
		}
		for _, suffix := range []string{"", "_packed"} {
			codes, ok := c.Source.Lookup(t.Name[:max(0, len(t.Name)-len("_scale"))] + suffix)
			if !ok || codes.Dtype != safetensors.U8 || len(codes.Shape) != 2 {
				continue
			}
			for _, bytes := range []int64{8, 16} { // of a block of 16 or 32 codes
				rows, blocks := int(codes.Shape[0]), int(codes.Shape[1]/bytes)
				if n := layout.Swizzled.Size(rows, blocks); int64(n) == t.Elements() && n > rows*blocks {
					c.report(moduleOf(strings.TrimSuffix(codes.Name, suffix)), "%s has %d scales for %d blocks: those of whole tiles of 128×4",
						t.Name, n, rows*blocks)
				}
			}
		}
	}
}
