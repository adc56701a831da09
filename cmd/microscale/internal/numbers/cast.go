package numbers

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Cast is a conversion between scalar formats.
type Cast struct {
	From, To   *format.Scalar
	Conversion format.Conversion
	Random     quant.Stream // for stochastic rounding
}

// code returns the code of v, the value at position i.
func (c *Cast) code(v float32, i uint64) uint32 {
	if c.Conversion.Rounding != format.Stochastic {
		return c.To.EncodeWith(v, c.Conversion, 0)
	}
	return c.To.EncodeWith(v, c.Conversion, c.Random.At(i))
}

// A castDocument is a converted number as JSON.
type castDocument struct {
	Text  string      `json:"text"` // as given
	Input show.Number `json:"input"`
	Bits  string      `json:"input_bits"`
	Code  string      `json:"code"`
	Value show.Number `json:"value"`
	Error show.Number `json:"relative_error"`
	Marks []string    `json:"marks"`
}

// Print converts numbers, and prints a row for each, or one JSON document.
func (c *Cast) Print(w io.Writer, args []string, asJSON bool) error {
	documents := []castDocument{}
	columns := []show.Column{show.Left("number"), show.Left(c.From.Name), show.Left("bits"), show.Left(fieldNames(c.To)), show.Left("code"),
		show.Left(c.To.Name), show.Right("error"), show.Left("")}
	t := show.NewTable(columns...)
	if c.From == format.F32 { // repeats the number
		t.SetColumnConfigs(append(show.NumericColumns(columns), table.ColumnConfig{Number: 1, Hidden: true}))
	}
	for i, a := range args {
		v, pattern, err := Parse(a, c.From)
		if err != nil {
			return err
		}
		code := c.code(v, uint64(i))
		got := c.To.Decode(code)
		m := marks(v, code, c.To)
		bits := hexText(pattern, c.From)
		t.AppendRow(table.Row{a, valueText(v, c.From), bits, bitsText(code, c.To), hexText(code, c.To), valueText(got, c.To), percentText(v, got),
			strings.Join(m, ", ")})
		documents = append(documents, castDocument{a, show.Number(v), bits, hexText(code, c.To), show.Number(got),
			show.Number(relativeError(v, got)), show.OrEmpty(m)})
	}
	if asJSON {
		return show.PrintJSON(w, map[string]any{
			"to": c.To.Name, "from": c.From.Name, "rounding": c.Conversion.Rounding.String(), "overflow": c.Conversion.Overflow.String(),
			"numbers": documents,
		})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// A codeDocument is a decoded code as JSON.
type codeDocument struct {
	Code  string      `json:"code"`
	Bits  string      `json:"bits"`
	Value show.Number `json:"value"`
	Text  string      `json:"text"` // of the value, also of NaN and Inf
}

// PrintCodes decodes codes of f, and prints a row for each, or one JSON document.
func PrintCodes(w io.Writer, args []string, f *format.Scalar, asJSON bool) error {
	documents := []codeDocument{}
	t := show.NewTable(show.Left("code"), show.Left(fieldNames(f)), show.Left(f.Name))
	for _, a := range args {
		code, err := strconv.ParseUint(a, 0, 32)
		if err != nil || code>>f.Bits() != 0 {
			return show.Misuse("%q is not a code of %s: use 0 to %#x", a, f, uint32(1)<<f.Bits()-1)
		}
		bits := uint32(code)
		v := fromBits(bits, f)
		t.AppendRow(table.Row{hexText(bits, f), bitsText(bits, f), valueText(v, f)})
		documents = append(documents, codeDocument{hexText(bits, f), bitsText(bits, f), show.Number(v), valueText(v, f)})
	}
	if asJSON {
		return show.PrintJSON(w, map[string]any{"format": f.Name, "codes": documents})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}
