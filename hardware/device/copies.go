package device

import "github.com/microscale-go/microscale/quant"

// Copies compares the ways to hold one tensor that a training step reads along its rows in one
// product and along its columns in another: Transformer Engine's three options, or one copy
// where one supports both directions.
type Copies struct {
	Operand    string // input, weight or gradient
	Rows, Cols int
	Format     quant.Format
	Options    []Option
}

// An Option is one way to make the columnwise operand. Sizes are bytes.
type Option struct {
	Name      string
	Available bool
	Why       string // why it is not available

	Reads  int64 // from the source in BF16 and from copies, by kernels that quantize or transpose
	Writes int64 // codes and scales
	Kept   int64 // between the forward pass and the backward pass
	Source *Source
}

// Storage returns the bytes of a rows×cols tensor in format f: codes, with partial blocks
// filled, and scales without padding.
func Storage(f quant.Format, rows, cols int) (codes, scales int64) {
	codes = int64(rows) * int64(f.PaddedCols(cols)) * int64(f.Element.StoredBits()) / 8
	r, c := f.ScaleShape(rows, cols)
	if f.Scaled() {
		scales = int64(r) * int64(c) * int64(f.Scale.StoredBits()) / 8
	}
	if f.Global {
		scales += 4
	}
	return codes, scales
}

func total(f quant.Format, rows, cols int) int64 {
	codes, scales := Storage(f, rows, cols)
	return codes + scales
}

// copies returns the options of each tensor of a.
func (a *Answer) copies() []Copies {
	var list []Copies
	for _, t := range []Copies{
		{Operand: "input", Rows: a.M, Cols: a.K, Format: a.Input},
		{Operand: "weight", Rows: a.N, Cols: a.K, Format: a.Weight},
		{Operand: "gradient", Rows: a.M, Cols: a.N, Format: a.Grad},
	} {
		if !t.Format.Scaled() {
			continue
		}
		transposed := false
		for _, p := range a.Products {
			for _, o := range []Operand{p.A, p.B} {
				if p.Mode == nil {
					return nil
				}
				transposed = transposed || o.Name == t.Operand && o.Transposed
			}
		}
		t.Options = options(t.Format, t.Rows, t.Cols, transposed)
		if t.Operand == "gradient" { // of the backward pass alone
			t.Options[0].Kept = 0
			t.Options = t.Options[:1]
		}
		list = append(list, t)
	}
	return list
}

// options returns the ways to make both operands of a tensor of the forward pass.
func options(f quant.Format, rows, cols int, transposed bool) []Option {
	source := 2 * int64(rows) * int64(cols) // BF16
	pass := source                          // of quantizing: one read, and one more for the amax of the tensor
	if f.NeedsAmax() {
		pass += source
	}
	row, column := total(f, rows, cols), total(f, cols, rows)
	if !transposed && f.Square() {
		return []Option{{Name: "one copy for both", Available: true, Reads: pass, Writes: row, Kept: row, Source: &docTE}}
	}
	transpose := Option{Name: "transpose in the backward pass", Available: f.Square(), Reads: pass + row, Writes: row + column, Kept: row,
		Source: &docTE}
	if !transpose.Available {
		transpose.Why = "rowwise codes have the scales of rows: they would be quantized twice"
	}
	return []Option{
		{Name: "one read for both", Available: true, Reads: pass, Writes: row + column, Kept: column, Source: &docTE},
		{Name: "columnwise in the backward pass", Available: true, Reads: 2 * pass, Writes: row + column, Kept: source, Source: &docTE},
		transpose,
	}
}
