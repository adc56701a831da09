package cost

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// A Table is a table of the source documents, computed again.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Tables returns the documents' tables of storage, ranges, rates, errors and thresholds.
func Tables() []Table {
	return []Table{storage(), ranges(), operations(), errorModel(), thresholdTable()}
}

func storage() Table {
	t := Table{Title: "Storage", Columns: []string{"format", "bits", "bytes", "BF16 / it", "scales", "rowwise + columnwise"}}
	for _, f := range quant.Formats() {
		b := f.BitsPerElement() / 8
		element := float64(f.Element.StoredBits()) / 8
		t.Rows = append(t.Rows, []string{f.Name, fmt.Sprintf("%.5g", 8*b), fmt.Sprintf("%.6g", b), fmt.Sprintf("%.4g", 2/b),
			fmt.Sprintf("%.4g%%", 100*(b/element-1)), fmt.Sprintf("%.6g", 2*b)})
	}
	return t
}

// effectiveRange returns the exponents of two of the smallest positive and the largest value of a format
// with one-byte scales: log2 of the smallest scale times the smallest element, and of the
// largest of both.
func effectiveRange(f quant.Format) (smallest, largest float64) {
	return math.Log2(float64(f.Scale.Smallest())) + math.Log2(float64(f.Element.Smallest())),
		math.Log2(float64(f.Scale.Max())) + math.Log2(float64(f.Element.Max()))
}

func ranges() Table {
	t := Table{Title: "Effective range of a block", Columns: []string{"format", "smallest", "largest", "orders of magnitude"}}
	for _, f := range quant.Formats() {
		if f.ByteScales() && f.Block.Rows == 1 {
			low, high := effectiveRange(f)
			t.Rows = append(t.Rows, []string{f.Name, fmt.Sprintf("2^%.0f", low), fmt.Sprintf("2^%.4g", high),
				fmt.Sprintf("%.1f", (high-low)*math.Log10(2))})
		}
	}
	return t
}

func operations() Table {
	t := Table{Title: "Operations per clock and compute unit of MI355X", Columns: []string{"format", "operations", "TFLOP/s per unit",
		"TFLOP/s"}}
	d, err := device.Lookup("mi355x")
	if err != nil {
		panic(err) // a row of the table
	}
	for _, f := range []quant.Format{quant.BF16, quant.MXFP8, quant.MXFP6E2M3, quant.MXFP4} {
		p := d.Peak(f.Element).Value
		unit := p / float64(d.Units)
		t.Rows = append(t.Rows, []string{f.Name, fmt.Sprintf("%.0f", unit/d.Clock), fmt.Sprintf("%.3g", unit/1e12), fmt.Sprintf("%.0f", p/1e12)})
	}
	return t
}

// ExpectedMaximum returns the mean of the largest magnitude of n standard Gaussian values,
// ∫ 1 − P(|x| < y)ⁿ dy.
func ExpectedMaximum(n int) float64 {
	const steps, end = 20000, 12.0
	sum := 0.0
	for i := range steps {
		y := (float64(i) + 0.5) * end / steps
		sum += 1 - math.Pow(math.Erf(y/math.Sqrt2), float64(n))
	}
	return sum * end / steps
}

// scaleError returns the error of a scale of n elements relative to 32 in the document [MF]
// of docs/errata.md: by its asymptote √(2 ln n), and by true maxima.
func scaleError(n int) (asymptote, maxima float64) {
	return math.Sqrt(math.Log(float64(n))/math.Log(32)) - 1, ExpectedMaximum(n)/ExpectedMaximum(32) - 1
}

// elementError returns half a step of an element relative to the power of two below it, and
// the largest relative error of a normal value.
func elementError(f quant.Format) (bound, worst float64) {
	half := math.Ldexp(1, -f.Element.Mantissa-1)
	return half, half / (1 + half)
}

func errorModel() Table {
	t := Table{Title: "Error model of MXFP8 in [MF]: √(ε_scale² + ε_element²)", Columns: []string{"block", "ε_scale", "by true maxima",
		"ε_element", "total"}}
	element, _ := elementError(quant.MXFP8)
	for _, n := range []int{8, 16, 32, 64, 128, 256} {
		a, m := scaleError(n)
		t.Rows = append(t.Rows, []string{fmt.Sprint(n), fmt.Sprintf("%+.1f%%", 100*a), fmt.Sprintf("%+.1f%%", 100*m),
			fmt.Sprintf("%.2f%%", 100*element), fmt.Sprintf("%.1f%%", 100*math.Hypot(a, element))})
	}
	return t
}

func thresholdTable() Table {
	t := Table{Title: "Sizes from which quantization pays on B200", Columns: []string{"format", "reads", "inference", "forward",
		"one read for both", "one read per copy"}}
	d, err := device.Lookup("b200")
	if err != nil {
		panic(err) // a row of the table
	}
	for _, row := range []struct {
		f     quant.Format
		reads int
	}{{quant.FP8Tensor, 2}, {quant.MXFP8, 1}, {quant.MXFP4, 1}, {quant.NVFP4, 1}, {quant.NVFP4, 2}} {
		cells := []string{row.f.Name, fmt.Sprint(row.reads)}
		for _, x := range Thresholds(d, row.f, row.reads) {
			cells = append(cells, fmt.Sprintf("%.0f", x.Size))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
