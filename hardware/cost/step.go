package cost

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

const sourceBytes = 2 // of an element in BF16

// quantizing returns the bytes that the quantizers of o read and write for one matrix, of which
// amax is what a separate pass for the amax of the tensor reads.
func (o operand) quantizing() (read, amax, written float64) {
	if !o.formats[rowwise].Scaled() && !o.formats[columnwise].Scaled() {
		return 0, 0, 0
	}
	source := sourceBytes * float64(o.rows) * float64(o.cols)
	if o.amax {
		amax = source
	}
	return source + amax, amax, o.copy(rowwise).total() + o.copy(columnwise).total()
}

// peak returns the rate of products of two formats: that of the slower.
func peak(d *device.Device, a, b quant.Format) device.Figure {
	x, y := d.Peak(a.Element), d.Peak(b.Element)
	if !x.Known() || y.Known() && y.Value < x.Value {
		return x
	}
	return y
}

// products returns the pairs of formats of the three products.
func products(list []operand) [3][2]quant.Format {
	x, w, dy := list[0], list[1], list[2]
	return [3][2]quant.Format{
		recipe.Fprop: {x.formats[rowwise], w.formats[rowwise]},
		recipe.Dgrad: {dy.formats[rowwise], w.formats[columnwise]},
		recipe.Wgrad: {dy.formats[columnwise], x.formats[columnwise]},
	}
}

// gemm returns the time of one product of m×k by n×k: operations at the peak, or traffic. NaN
// if the peak is unknown.
func gemm(d *device.Device, a, b quant.Format, m, n, k float64, resultBytes float64) float64 {
	p := peak(d, a, b)
	if !p.Known() || !d.Bandwidth.Known() {
		return math.NaN()
	}
	return max(2*m*n*k/p.Value, traffic(a, b, m, n, k, resultBytes)/d.Bandwidth.Value)
}

// traffic returns the bytes of operands and result of a product, each once.
func traffic(a, b quant.Format, m, n, k, resultBytes float64) float64 {
	return m*k*a.BitsPerElement()/8 + n*k*b.BitsPerElement()/8 + m*n*resultBytes
}

// A work is what a training step does for one matrix.
type work struct {
	read, amax, written float64 // bytes of quantizers; amax is a part of read
	copied              float64 // elements of copies
	moved               float64 // bytes of products

	products, quantizers, bf16 float64 // seconds; bf16: of products in BF16
	rates                      string  // of the products, or why they are unknown
}

// work returns the work of a training step for one matrix.
func (e *Estimate) work(operands []operand) work {
	w := work{rates: rateText(e.Device, operands) + "; " + bandwidthText(e.Device.Bandwidth)}
	for _, o := range operands {
		read, amax, written := o.quantizing()
		w.read, w.amax, w.written = w.read+read, w.amax+amax, w.written+written
		for d := range o.formats {
			if o.copy(d) != (part{}) {
				w.copied += float64(o.rows) * float64(o.cols)
			}
		}
	}
	tokens, width := float64(e.Tokens), float64(e.Width)
	for g, pair := range products(operands) {
		result := float64(sourceBytes)
		m, n, k := tokens, width, width
		if recipe.GEMM(g) == recipe.Wgrad {
			result, m, n, k = 4, width, width, tokens
		}
		w.moved += traffic(pair[0], pair[1], m, n, k, result)
		w.bf16 += gemm(e.Device, quant.BF16, quant.BF16, m, n, k, result)
		w.products += gemm(e.Device, pair[0], pair[1], m, n, k, result)
		if p := e.Products[g]; p.Mode == nil {
			w.products, w.rates = math.NaN(), p.Problems[0].String()
		}
	}
	w.quantizers = (w.read + w.written) / e.Device.Bandwidth.Value
	return w
}

// step returns operations, traffic and time of a training step of the linear layers.
func (e *Estimate) step(w work) Section {
	const perElement = 3 // amax, multiply, round
	n, bandwidth := e.matrices(), e.Device.Bandwidth.Value
	operations := 3 * 2 * float64(e.Tokens) * e.Params
	total := n * (w.products + w.quantizers)
	return Section{"A training step of the linear layers", []Figure{
		{"operations of products", operations, "FLOP", fmt.Sprintf("3 products × 2 × %d tokens × %.4g parameters", e.Tokens, e.Params)},
		{"operations of quantizers", n * perElement * w.copied, "FLOP",
			fmt.Sprintf("%.4g matrices × %d (amax, scale, round) × %.4g elements of copies", n, perElement, w.copied)},
		{"quantizers / products", n * perElement * w.copied / operations, "", "operations"},
		{"products read and write", n * w.moved, "B",
			fmt.Sprintf("%.4g matrices × %.4g B: operands once, results in BF16, weight gradients in FP32", n, w.moved)},
		{"quantizers read", n * w.read, "B", fmt.Sprintf("%.4g matrices × %.4g B of BF16 sources", n, w.read)},
		{"of which for amax", n * w.amax, "B", fmt.Sprintf("%.4g matrices × %.4g B: a separate read for a scale of the tensor", n, w.amax)},
		{"quantizers write", n * w.written, "B", fmt.Sprintf("%.4g matrices × %.4g B of copies", n, w.written)},
		{"time of products", n * w.products, "s", "max(operations / peak, traffic / bandwidth); " + w.rates},
		{"time of quantizers", n * w.quantizers, "s", fmt.Sprintf("%.4g B / %.4g B/s", n*(w.read+w.written), bandwidth)},
		{"of which for amax", n * w.amax / bandwidth, "s", fmt.Sprintf("%.4g B / %.4g B/s", n*w.amax, bandwidth)},
		{"quantizers' share of the time", n * w.quantizers / total, "", "quantizers / (products + quantizers)"},
		{"time of products in BF16", n * w.bf16, "s", "the same with BF16 operands; " + figureText(e.Device.BF16)},
		{"speedup over BF16", n * w.bf16 / total, "", "BF16 / (products + quantizers)"},
	}}
}

// rateText names the peaks of the products with their sources.
func rateText(d *device.Device, operands []operand) string {
	text, last := "", ""
	for g, pair := range products(operands) {
		f := figureText(peak(d, pair[0], pair[1]))
		if f != last {
			if text != "" {
				text += ", "
			}
			text += recipe.GEMM(g).String() + " at " + f
			last = f
		}
	}
	return text
}

// figureText writes a rate with its source.
func figureText(f device.Figure) string {
	if !f.Known() {
		return "an unknown rate (" + f.Note + ")"
	}
	return fmt.Sprintf("%.4g FLOP/s (%s)", f.Value, f.Source.Title)
}

func bandwidthText(f device.Figure) string {
	return fmt.Sprintf("%.4g B/s (%s)", f.Value, f.Source.Title)
}

// A Threshold is the size from which a square product in a low precision is faster than BF16.
type Threshold struct {
	Name    string
	Size    float64
	Formula string

	products int // of a step, in the order of recipe.GEMM
}

// Thresholds returns the sizes s of s×s×s products from which quantizing to f pays on d: where
// operations at the peaks save more time than quantizers take at the memory's bandwidth. reads
// is how often a quantizer reads its source: 1, or 2 with a pass for the amax of the tensor.
//
//	2·s³·(1/P₁₆ − 1/P) = quantizers' bytes per element · s² / bandwidth
func Thresholds(d *device.Device, f quant.Format, reads int) []Threshold {
	low, high, bandwidth := d.Peak(f.Element), d.BF16, d.Bandwidth
	saved := 1/high.Value - 1/low.Value
	b := f.BitsPerElement() / 8
	source := float64(reads) * sourceBytes
	row := func(name string, bytes float64, products int, terms string) Threshold {
		size := bytes / (2 * float64(products) * bandwidth.Value * saved)
		if !low.Known() || !high.Known() || !(saved > 0) {
			size = math.NaN()
		}
		return Threshold{name, size, fmt.Sprintf("%s = %.4g B / (%d × 2 × %.4g B/s × (1/%.4g − 1/%.4g) s)", terms, bytes, products,
			bandwidth.Value, high.Value, low.Value), products}
	}
	return []Threshold{
		row("forward, weight quantized before", source+b, 1, fmt.Sprintf("input: read %g + write %.5g", source, b)),
		row("forward", 2*(source+b), 1, fmt.Sprintf("input and weight: 2 × (read %g + write %.5g)", source, b)),
		row("training step, one read for both", 3*(source+2*b), 3, fmt.Sprintf("3 tensors × (read %g + write 2 × %.5g)", source, b)),
		row("training step, one read per copy", 3*2*(source+b), 3, fmt.Sprintf("3 tensors × 2 × (read %g + write %.5g)", source, b)),
	}
}

// thresholds returns the sizes for the format of the recipe's inputs.
func (e *Estimate) thresholds() Section {
	s := Section{Title: "Sizes of square products from which quantization pays"}
	f := e.Recipe.Input.Rowwise.Format
	if !f.Scaled() {
		return s
	}
	reads := 1
	if f.NeedsAmax() && !e.Recipe.Delayed.Enabled() {
		reads = 2
	}
	for _, t := range Thresholds(e.Device, f, reads) {
		figure := Figure{t.Name, t.Size, "rows", t.Formula}
		for _, p := range e.Products[:t.products] {
			if p.Mode == nil {
				figure.Value, figure.Formula = math.NaN(), p.Problems[0].String()
				break
			}
		}
		s.Figures = append(s.Figures, figure)
	}
	return s
}

// Speedups returns the formats whose rate on d is known and above BF16's, one of each number of bits and scale, and for each of them and
// each size the time of a square product in BF16 over that in the format with both operands quantized before it, by the roofline of d.
func Speedups(d *device.Device, sizes []float64) (formats []quant.Format, over [][]float64) {
	formats = faster(d)
	for _, f := range formats {
		over = append(over, speedup(d, f, sizes))
	}
	return formats, over
}

// speedup is Speedups of one format.
func speedup(d *device.Device, f quant.Format, sizes []float64) []float64 {
	reads := 1.0
	if f.NeedsAmax() {
		reads = 2
	}
	list := make([]float64, len(sizes))
	for i, s := range sizes {
		q := 2 * s * s * (reads*sourceBytes + f.BitsPerElement()/8) / d.Bandwidth.Value
		list[i] = gemm(d, quant.BF16, quant.BF16, s, s, s, sourceBytes) / (gemm(d, f, f, s, s, s, sourceBytes) + q)
	}
	return list
}

// faster returns the formats whose rate on d is known and above BF16's, one of each number
// of bits and scale.
func faster(d *device.Device) []quant.Format {
	var list []quant.Format
	for _, f := range []quant.Format{quant.FP8Tensor, quant.MXFP8, quant.MXFP6E2M3, quant.MXFP4, quant.NVFP4} {
		p := d.Peak(f.Element)
		if p.Known() && p.Value > d.BF16.Value && runs(d, f) {
			list = append(list, f)
		}
	}
	return list
}

// runs reports whether d multiplies operands of f, FNUZ codes included.
func runs(d *device.Device, f quant.Format) bool {
	a, err := device.Check(device.Request{Device: d, Input: f, Weight: f, Grad: f, M: 128, N: 128, K: 128, Forward: true})
	return err == nil && (a.OK || f.Scale == format.F32)
}
