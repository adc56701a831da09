package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Request is the question of Check: a linear layer of m×k inputs, n×k weights and m×n
// output gradients.
type Request struct {
	Device              *Device
	Input, Weight, Grad quant.Format
	M, N, K             int
	Forward             bool // check fprop alone, for inference
}

// An Answer is the result of Check.
type Answer struct {
	Request
	OK        bool // every product runs, with the transposes that it lists
	Products  []Product
	Copies    []Copies    // what a tensor used in both directions costs; none for Forward
	Libraries []Statement // what training libraries say of the formats
}

// A Product is one of the three products of the layer.
type Product struct {
	Name string // fprop, dgrad or wgrad

	// Rows, Cols and Sum are the shape of the result and the summed dimension.
	Rows, Cols, Sum int

	A, B Operand

	// Mode is nil where nothing supports the operands.
	Mode     *Mode
	Natural  Layout // of operands as they are stored
	Layout   Layout // of the call
	Problems []Problem
}

// An Operand is one operand of a product.
type Operand struct {
	Name       string // input, weight or gradient
	Format     quant.Format
	Scaling    string // the scale mode of the library
	Columnwise bool   // the product reads it along its columns
	Transposed bool   // it needs a transposed copy of its codes
	Requantize bool   // that copy has other scales than the rowwise one
}

// A Problem is a reason why a product does not run.
type Problem struct {
	What, Remedy string
	Source       *Source
}

// String returns problem and remedy.
func (p Problem) String() string { return p.What + ": " + p.Remedy }

// MaxSize is the maximum of M, N and K. Byte counts of larger matrices would overflow.
const MaxSize = 1 << 28

// Check reports whether the device multiplies the operands of r, and how. It returns an error
// for sizes below 1 or above [MaxSize], and for formats without codes.
func Check(r Request) (Answer, error) {
	if err := r.validate(); err != nil {
		return Answer{}, err
	}
	a := Answer{Request: r, OK: true}
	for _, p := range r.products() {
		p.resolve(r.Device.Arch)
		a.OK = a.OK && len(p.Problems) == 0
		a.Products = append(a.Products, p)
	}
	if !r.Forward {
		a.Copies = a.copies()
	}
	a.Libraries = a.statements()
	return a, nil
}

func (r *Request) validate() error {
	for _, d := range r.dimensions() {
		if d.size < 1 || d.size > MaxSize {
			return fmt.Errorf("%s: got %d, want 1 to %d", d.name, d.size, MaxSize)
		}
	}
	for _, f := range []quant.Format{r.Input, r.Weight, r.Grad} {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// A dimension is a size of the layer with its name.
type dimension struct {
	name string
	size int
}

func (r *Request) dimensions() [3]dimension { return [3]dimension{{"m", r.M}, {"n", r.N}, {"k", r.K}} }

// products returns the products of the layer: fprop alone for Forward.
func (r *Request) products() []Product {
	input, weight, grad := Operand{Name: "input", Format: r.Input}, Operand{Name: "weight", Format: r.Weight},
		Operand{Name: "gradient", Format: r.Grad}
	columnwise := func(o Operand) Operand { o.Columnwise = true; return o }
	list := []Product{
		{Name: "fprop", Rows: r.M, Cols: r.N, Sum: r.K, A: input, B: weight, Natural: tn},
		{Name: "dgrad", Rows: r.M, Cols: r.K, Sum: r.N, A: grad, B: columnwise(weight), Natural: nn},
		{Name: "wgrad", Rows: r.N, Cols: r.K, Sum: r.M, A: columnwise(grad), B: columnwise(input), Natural: nt},
	}
	if r.Forward {
		return list[:1]
	}
	return list
}

// resolve chooses the first mode that accepts the pair of operands, or else each of them, and
// lists what is wrong.
func (p *Product) resolve(arch *Architecture) {
	a, b := p.A.Format, p.B.Format
	each := func(m Mode) bool {
		_, acceptsA := m.scaling(a)
		_, acceptsB := m.scaling(b)
		return acceptsA && acceptsB && (a.Scaled() || a.Element == b.Element)
	}
	i := slices.IndexFunc(arch.Modes, func(m Mode) bool { return each(m) && len(m.shared(a, b)) == 0 })
	if i < 0 {
		i = slices.IndexFunc(arch.Modes, each)
	}
	if i < 0 {
		p.Problems = []Problem{p.unsupported(arch)}
		return
	}
	p.Mode = &arch.Modes[i]
	p.Layout = tn
	if slices.Contains(p.Mode.Layouts, p.Natural) {
		p.Layout = p.Natural
	}
	for _, o := range []*Operand{&p.A, &p.B} {
		s, _ := p.Mode.scaling(o.Format)
		o.Scaling = s.Name
		o.Requantize = o.Columnwise && !o.Format.Square() && o.Format.Scaled()
		o.Transposed = o.Columnwise && p.Layout == tn
	}
	p.checkShape()
}

// checkShape adds the problems of a product whose formats a mode supports.
func (p *Product) checkShape() {
	m := p.Mode
	add := func(what, remedy string) {
		p.Problems = append(p.Problems, Problem{what, remedy, m.Source})
	}
	for _, what := range m.shared(p.A.Format, p.B.Format) {
		add(fmt.Sprintf("%s accepts %s in one operand only", m.Library, what), fmt.Sprintf("use another format for %s or %s", p.A.Name, p.B.Name))
	}
	multiple := func(what string, n, of int) {
		if of > 1 && n%of != 0 {
			add(fmt.Sprintf("%s is %d, not a multiple of %d", what, n, of), fmt.Sprintf("pad it to %d", (n+of-1)/of*of))
		}
	}
	for _, o := range []struct {
		Operand
		outer int
	}{{p.A, p.Rows}, {p.B, p.Cols}} {
		row := o.outer // the contiguous dimension of an operand that is read along its columns
		if !o.Columnwise || o.Transposed {
			row = p.Sum
		}
		what := fmt.Sprintf("the contiguous dimension of %s", o.Name)
		switch bits := o.Format.Element.StoredBits(); {
		case bits < 8 && m.Narrow > 0:
			multiple(what, row, m.Narrow)
		default:
			multiple(what, row, elements(m.RowBytes, bits))
		}
	}
	multiple("the contiguous dimension of the result", p.Cols, elements(m.RowBytes, format.BF16.StoredBits()))
	multiple("the summed dimension", p.Sum, m.Contraction)
	multiple("the rows of the result", p.Rows, m.Outer)
	multiple("the columns of the result", p.Cols, m.Outer)
}

// elements returns the smallest number of elements whose bytes are a multiple of n.
func elements(n, bits int) int {
	e := 1
	for n > 0 && e*bits%(8*n) != 0 {
		e++
	}
	return e
}

// unsupported explains why no mode of arch accepts both operands.
func (p *Product) unsupported(arch *Architecture) Problem {
	pair := p.A.Format.Name
	if p.B.Format.Name != pair {
		pair += " × " + p.B.Format.Name
	}
	what := fmt.Sprintf("%s has no unit for %s", arch, pair)
	if codes := arch.otherCodes(p.A.Format); codes != "" {
		what = fmt.Sprintf("%s reads codes of %s, not %s", arch, codes, p.A.Format.Element)
	}
	remedy := "use bf16"
	if can := arch.formats(); len(can) > 0 {
		remedy = "use " + strings.Join(can, ", ")
	}
	return Problem{what, remedy, arch.Modes[0].Source}
}

// otherCodes returns the element formats of as many bits as f's that arch multiplies under
// f's scaling, where f's own is not among them.
func (a *Architecture) otherCodes(f quant.Format) string {
	for i := range a.Modes {
		m := &a.Modes[i]
		if slices.ContainsFunc(m.Scalings, func(s Scaling) bool { return s.accepts(f) }) && !slices.Contains(m.Elements, f.Element) &&
			m.Elements[0].StoredBits() == f.Element.StoredBits() {
			var names []string
			for _, e := range m.Elements {
				names = append(names, e.Name)
			}
			return strings.Join(names, " and ")
		}
	}
	return ""
}

// formats returns the names of the formats that the architecture multiplies, both operands
// alike.
func (a *Architecture) formats() []string {
	var names []string
	for _, f := range quant.Formats() {
		for i := range a.Modes {
			m := &a.Modes[i]
			if _, ok := m.scaling(f); !ok || !f.Scaled() || slices.Contains(names, f.Name) {
				continue
			}
			if len(m.shared(f, f)) > 0 {
				continue
			}
			names = append(names, f.Name)
		}
	}
	return append(names, quant.BF16.Name)
}
