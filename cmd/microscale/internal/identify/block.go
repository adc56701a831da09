package identify

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

// A Block is one block of a quantized weight, beside what each profile makes of its values.
type Block struct {
	Weight  string        `json:"weight"`
	Format  string        `json:"format"`
	Block   int           `json:"block"`
	Row     int           `json:"row"` // the first
	Col     int           `json:"col"` // the first
	Rows    int           `json:"rows"`
	Cols    int           `json:"cols"`
	Writers []blockCodes  `json:"writers"`          // that of the file first, named "file"
	Values  []show.Number `json:"values,omitempty"` // of the original, by rows
}

// blockCodes are the codes of a block.
type blockCodes struct {
	Name    string        `json:"name"`
	Scale   show.Number   `json:"scale"`            // of the block
	Global  show.Number   `json:"global,omitempty"` // of the weight; 0 if the format has none
	Codes   []byte        `json:"-"`
	Hex     []string      `json:"codes"`
	Decoded []show.Number `json:"decoded"` // as clients of the file's convention compute them, for the file
}

// BlockOf reads a block of a weight, by its number in the order of rows. source is the original; nil if there is none.
func BlockOf(ctx context.Context, m, source *checkpoint.Model, name string, number int) (*Block, error) {
	w, ok := m.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("no weight is called %q: microscale inspect --each lists them", name)
	}
	if !w.Quantized() {
		return nil, fmt.Errorf("%s is %s, which has no blocks", name, w.FormatName())
	}
	rows, cols := w.Matrix()
	high, wide := w.Format.ScaleShape(rows, cols)
	if number < 0 || number >= high*wide {
		return nil, fmt.Errorf("%s has blocks 0 to %d, not %d", name, high*wide-1, number)
	}
	size := w.Format.Block
	if size.Rows == 0 {
		size.Rows = rows
	}
	if size.Cols == 0 {
		size.Cols = cols
	}
	t := checkpoint.Tile{From: number / wide * size.Rows, FromCol: number % wide * size.Cols}
	t.To, t.ToCol = min(t.From+size.Rows, rows), min(t.FromCol+size.Cols, cols)
	b := &Block{Weight: name, Format: w.Format.Name, Block: number, Row: t.From, Col: t.FromCol, Rows: t.To - t.From,
		Cols: t.ToCol - t.FromCol}
	q, err := w.ReadCodes(t)
	if err != nil {
		return nil, err
	}
	values, err := w.ReadTile(t)
	if err != nil {
		return nil, err
	}
	b.add("file", q, values.Data)
	if source == nil {
		return b, nil
	}
	original, ok := source.Lookup(name)
	if !ok || !slices.Equal(original.Shape, w.Shape) || !original.Dense() {
		return nil, fmt.Errorf("the source has no weight %s of %d×%d", name, rows, cols)
	}
	return b, b.compare(ctx, m, source, w, original, t)
}

// compare adds the original values, and the codes of every profile.
func (b *Block) compare(ctx context.Context, m, source *checkpoint.Model, w, original *checkpoint.Weight, t checkpoint.Tile) error {
	x, err := original.ReadTile(t)
	if err != nil {
		return err
	}
	for i := range x.Rows {
		for _, v := range x.Row(i) {
			b.Values = append(b.Values, show.Number(v))
		}
	}
	scopes, err := scopesOf(ctx, m, source, w, map[string]float32{})
	if err != nil {
		return err
	}
	for _, p := range profiles(w.Format) {
		q, err := p.Quantizer(w.Format)
		if err != nil {
			return err
		}
		with := quant.With{FirstRow: t.From}
		if w.Format.NeedsAmax() {
			with.Amax = &scopes[len(scopes)-1]
		}
		made, err := quantized(q, original, t, with)
		if err != nil {
			return err
		}
		b.add(p.Name, made, made.Dequantize(1).Data)
	}
	return nil
}

// add adds the codes of a writer.
func (b *Block) add(name string, q *quant.Tensor, decoded []float32) {
	c := blockCodes{Name: name}
	if c.Scale = show.Number(q.Scale(0, 0)); q.Format.Global {
		c.Global = show.Number(q.Global)
		c.Scale = show.Number(q.Format.Scale.Decode(uint32(q.Scales[0])))
	}
	width := q.Format.PaddedCols(q.Cols())
	codes := q.Codes
	if q.Format.Element.StoredBits() < 8 {
		codes = make([]byte, q.Rows()*width)
		q.Format.Element.Split(codes, q.Codes)
	}
	for i := range q.Rows() {
		c.Codes = append(c.Codes, codes[i*width:i*width+q.Cols()]...)
	}
	for i, code := range c.Codes {
		c.Hex = append(c.Hex, fmt.Sprintf("%#x", code))
		c.Decoded = append(c.Decoded, show.Number(decoded[i]))
	}
	b.Writers = append(b.Writers, c)
}

// differs marks scales and codes that are not those of the file.
const differs = "*"

// Print prints the block as a table: a row for each element, and a column for each writer.
func (b *Block) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(w, b)
	}
	columns := []show.Column{show.Right("row"), show.Right("column")}
	if b.Values != nil {
		columns = append(columns, show.Right("original"))
	}
	columns = append(columns, show.Right("decoded"))
	for _, c := range b.Writers {
		columns = append(columns, show.Left(c.Name))
	}
	t := show.NewTable(columns...)
	file, blank := &b.Writers[0], len(columns)-len(b.Writers)
	row := func(title string, text func(c *blockCodes) string) {
		cells := make(table.Row, blank)
		for i := range cells {
			cells[i] = ""
		}
		cells[blank-1] = title
		for i := range b.Writers {
			cells = append(cells, marked(text(&b.Writers[i]), text(file)))
		}
		t.AppendRow(cells)
	}
	if file.Global != 0 {
		row("global", func(c *blockCodes) string { return fmt.Sprintf("%.6g", float64(c.Global)) })
	}
	row("scale", func(c *blockCodes) string { return fmt.Sprintf("%.6g", float64(c.Scale)) })
	for i := range file.Codes {
		cells := table.Row{b.Row + i/b.Cols, b.Col + i%b.Cols}
		if b.Values != nil {
			cells = append(cells, fmt.Sprintf("%.6g", float64(b.Values[i])))
		}
		cells = append(cells, fmt.Sprintf("%.6g", float64(file.Decoded[i])))
		for _, c := range b.Writers {
			cells = append(cells, marked(c.Hex[i], file.Hex[i]))
		}
		t.AppendRow(cells)
	}
	_, err := fmt.Fprintf(w, "%s: %s, block %d: %d×%d from row %d, column %d\n\n%s\n", show.Printable(b.Weight), b.Format, b.Block, b.Rows,
		b.Cols, b.Row, b.Col, t.Render())
	return err
}

func marked(text, file string) string {
	if text != file {
		return text + " " + differs
	}
	return text
}
