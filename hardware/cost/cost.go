// Package cost computes what a recipe costs on a device: bytes of weights, copies, scales and
// padding, traffic, operations, and the sizes from which quantization pays. Each figure has its
// formula with its inputs, and the source of the rates in it.
//
// The weights of the model are square matrices of one width. A product reads each operand once.
// Its time is the longer of its operations at the peak rate and its traffic at the bandwidth of
// the memory. Real kernels reach less of both.
package cost

import (
	"fmt"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// A Config is what to estimate.
type Config struct {
	Params float64 // of the linear layers
	Recipe recipe.Recipe
	Device *device.Device
	Tokens int // of a step
	Width  int // of the weights, which are Width×Width

	Network *Network // of the ranks that share a run; nil: one rank
}

// A Figure is one result.
type Figure struct {
	Name    string
	Value   float64 // NaN: unknown
	Unit    string  // "B", "FLOP", "s", "rows", or "" for a ratio
	Formula string  // with its inputs; why it is unknown
}

// A Section is a group of figures.
type Section struct {
	Title   string
	Figures []Figure
}

// An Estimate is the result of New.
type Estimate struct {
	Config
	Sections []Section
	Products [3]device.Product // whether the device runs them, by recipe.GEMM
}

// An operand is one tensor of a linear layer.
type operand struct {
	name       string
	rows, cols int
	formats    [2]quant.Format // rowwise and columnwise
	shared     bool            // one copy for both directions
	amax       bool            // its amax takes a separate read of the source
}

const (
	rowwise = iota
	columnwise
)

// operands returns input, weight and output gradient under the recipe.
func (c *Config) operands() []operand {
	r := &c.Recipe
	list := []operand{
		{name: "input", rows: c.Tokens, cols: c.Width, formats: c.formats(r.Input, recipe.Fprop, recipe.Wgrad)},
		{name: "weight", rows: c.Width, cols: c.Width, formats: c.formats(r.Weight, recipe.Fprop, recipe.Dgrad)},
		{name: "gradient", rows: c.Tokens, cols: c.Width, formats: c.formats(r.Grad, recipe.Dgrad, recipe.Wgrad)},
	}
	shared := [...]bool{r.Input.Shared(), r.Weight.Shared(), r.Grad.Shared()}
	for i := range list {
		o := &list[i]
		o.shared = shared[i]
		for _, f := range o.formats {
			o.amax = o.amax || f.NeedsAmax() && !r.Delayed.Enabled()
		}
	}
	return list
}

// formats returns the formats of an operand in its two products.
func (c *Config) formats(o recipe.Operand, row, column recipe.GEMM) [2]quant.Format {
	f := [2]quant.Format{o.Rowwise.Format, o.Columnwise.Format}
	for i, g := range []recipe.GEMM{row, column} {
		if c.Recipe.HighPrecision[g] {
			f[i] = c.Recipe.Activations
		}
	}
	return f
}

// A part is the bytes of one copy.
type part struct{ codes, scales, padding float64 }

func (p part) total() float64 { return p.codes + p.scales + p.padding }

// copy returns the bytes of the copy in one direction: none for unquantized formats, and none
// columnwise if both directions share a copy.
func (o operand) copy(direction int) part {
	f := o.formats[direction]
	if !f.Scaled() || direction == columnwise && o.shared {
		return part{}
	}
	rows, cols := o.rows, o.cols
	if direction == columnwise {
		rows, cols = cols, rows
	}
	codes, scales := device.Storage(f, rows, cols)
	return part{float64(codes), float64(scales), float64(padding(f, rows, cols, scales))}
}

// padding returns the bytes by which the order of hardware enlarges the scales:
// tiles of 128×4 for one-byte scales, columns of whole 16 bytes for FP32 scales of 1×128.
func padding(f quant.Format, rows, cols int, scales int64) int64 {
	_, blocks := f.ScaleShape(rows, cols)
	switch {
	case f.ByteScales():
		global := int64(0)
		if f.Global {
			global = 4
		}
		return int64(layout.Swizzled.Size(rows, blocks)) + global - scales
	case f.Block.Rows == 1 && f.Block.Cols > 0:
		return 4*int64(layout.AlignedColumns.Size(rows, blocks)) - scales
	}
	return 0
}

// maxParams limits the parameters to what the tables can print.
const maxParams = 1e18

// New estimates c. It returns an error for sizes below 1 or above the maxima.
func New(c Config) (*Estimate, error) {
	switch {
	case !(c.Params >= 1 && c.Params <= maxParams):
		return nil, fmt.Errorf("parameters: got %v, want 1 to %v", c.Params, maxParams)
	case c.Tokens < 1 || c.Tokens > device.MaxSize:
		return nil, fmt.Errorf("tokens: got %d, want 1 to %d", c.Tokens, device.MaxSize)
	case c.Width < 1 || c.Width > device.MaxSize:
		return nil, fmt.Errorf("width: got %d, want 1 to %d", c.Width, device.MaxSize)
	}
	e := &Estimate{Config: c}
	operands := c.operands()
	for g, pair := range products(operands) {
		r := device.Request{Device: c.Device, Input: pair[0], Weight: pair[1], Grad: pair[0], M: c.Tokens, N: c.Width, K: c.Width}
		if recipe.GEMM(g) == recipe.Wgrad {
			r.Input = pair[1]
		}
		a, err := device.Check(r)
		if err != nil {
			return nil, err
		}
		e.Products[g] = a.Products[g]
	}
	for i := range operands {
		operands[i].untranspose(e.Products[:])
	}
	w := e.work(operands)
	e.Sections = []Section{e.weights(operands[1]), e.activations(operands[0]), e.step(w), e.thresholds()}
	if c.Network != nil {
		if err := c.Network.Validate(); err != nil {
			return nil, err
		}
		e.Sections = append(e.Sections, c.network(e.matrices()*w.products+e.matrices()*w.quantizers)...)
	}
	return e, nil
}

// untranspose makes o two copies if a product needs a transposed one.
func (o *operand) untranspose(products []device.Product) {
	for _, p := range products {
		for _, q := range []device.Operand{p.A, p.B} {
			o.shared = o.shared && !(q.Name == o.name && q.Transposed)
		}
	}
}

// matrices is the number of weights, a fraction if the width does not divide the parameters.
func (c *Config) matrices() float64 { return c.Params / float64(c.Width) / float64(c.Width) }

// weights returns the memory that weights take.
func (e *Estimate) weights(w operand) Section {
	n, per := e.matrices(), fmt.Sprintf("%.4g matrices of %d×%d", e.matrices(), e.Width, e.Width)
	s := Section{Title: "Weights"}
	add := func(name string, v float64, formula string) {
		s.Figures = append(s.Figures, Figure{name, v, "B", formula})
	}
	add("BF16", 2*e.Params, fmt.Sprintf("%.4g parameters × 2 B", e.Params))
	sum := 0.0
	for d, name := range []string{"rowwise", "columnwise"} {
		f, p := w.formats[d], w.copy(d)
		if p == (part{}) {
			why := "the products are in " + f.Name
			if f.Scaled() {
				why = "both directions read the rowwise copy"
			}
			add(name+" copy", 0, why)
			continue
		}
		add(name+" codes", n*p.codes, fmt.Sprintf("%s × %.4g B of %s codes", per, p.codes, f.Element))
		add(name+" scales", n*p.scales, fmt.Sprintf("%s × %.4g B of %s scales, one for %s", per, p.scales, f.Scale, blockText(f)))
		add(name+" padding", n*p.padding, fmt.Sprintf("%s × %.4g B: scales are repeated for each row and padded as hardware reads them", per,
			p.padding))
		sum += n * p.total()
	}
	add("copies", sum, "sum of the copies")
	s.Figures = append(s.Figures, Figure{"copies / BF16", sum / (2 * e.Params), "", fmt.Sprintf("%.4g B / %.4g B", sum, 2*e.Params)})
	add("master weights", 4*e.Params, fmt.Sprintf("%.4g parameters × 4 B of FP32", e.Params))
	add("moments of AdamW", 8*e.Params, fmt.Sprintf("%.4g parameters × 2 × 4 B of FP32", e.Params))
	add("gradients", 4*e.Params, fmt.Sprintf("%.4g parameters × 4 B of FP32", e.Params))
	return s
}

// blockText words the elements that share a scale.
func blockText(f quant.Format) string {
	switch {
	case f.PerTensor():
		return "a tensor"
	case f.Block.Cols == 0:
		return "a row"
	}
	return fmt.Sprintf("%d×%d elements", f.Block.Rows, f.Block.Cols)
}

// activations returns what linear layers keep for the backward pass.
func (e *Estimate) activations(x operand) Section {
	n, elements := e.matrices(), float64(e.Tokens)*float64(e.Width)
	kept, text := x.copy(columnwise), "columnwise"
	if x.shared && x.formats[rowwise].Scaled() {
		kept, text = x.copy(rowwise), "rowwise"
	}
	bytes, formula := kept.total(), fmt.Sprintf("%.4g matrices × %.4g B of the %s copy of %d×%d inputs", n, kept.total(), text, e.Tokens,
		e.Width)
	if kept == (part{}) {
		bytes, formula = 2*elements, fmt.Sprintf("%.4g matrices × %.4g B: the inputs in BF16", n, 2*elements)
	}
	return Section{"Activations that linear layers keep", []Figure{
		{"BF16", n * 2 * elements, "B", fmt.Sprintf("%.4g matrices × %d tokens × %d inputs × 2 B", n, e.Tokens, e.Width)},
		{"recipe", n * bytes, "B", formula},
		{"recipe / BF16", bytes / (2 * elements), "", fmt.Sprintf("%.4g B / %.4g B", bytes, 2*elements)},
	}}
}
