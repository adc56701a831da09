package catalog

import (
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

type blockDocument struct {
	Name           string   `json:"name"`
	Aliases        []string `json:"aliases"`
	Element        string   `json:"element"`
	Scale          *string  `json:"scale"`        // null: not scaled
	BlockRows      int      `json:"block_rows"`   // 0: all
	BlockCols      int      `json:"block_cols"`   // 0: all
	Global         bool     `json:"global_scale"` // a second scale, float32, for the tensor
	BitsPerElement float64  `json:"bits_per_element"`
}

type scalarDocument struct {
	Name           string      `json:"name"`
	Aliases        []string    `json:"aliases"`
	Bits           int         `json:"bits"`
	ExponentBits   int         `json:"exponent_bits"`
	MantissaBits   int         `json:"mantissa_bits"`
	Bias           int         `json:"bias"`
	Max            show.Number `json:"max"`
	SmallestNormal show.Number `json:"smallest_normal"`
	Smallest       show.Number `json:"smallest"`
	Inf            bool        `json:"inf"`
	NaN            bool        `json:"nan"`
	Signed         bool        `json:"signed"`
	Integer        bool        `json:"integer"`
}

// FormatsDocument returns the formats as a JSON document.
func FormatsDocument() any {
	var doc struct {
		Blocks  []blockDocument  `json:"block_formats"`
		Scalars []scalarDocument `json:"scalar_formats"`
	}
	for _, f := range quant.Formats() {
		b := blockDocument{Name: f.Name, Aliases: show.OrEmpty(strings.Fields(f.Aliases)), Element: f.Element.Name, BlockRows: f.Block.Rows,
			BlockCols: f.Block.Cols, Global: f.Global, BitsPerElement: f.BitsPerElement()}
		if f.Scaled() {
			b.Scale = &f.Scale.Name
		}
		doc.Blocks = append(doc.Blocks, b)
	}
	for _, s := range format.All() {
		doc.Scalars = append(doc.Scalars, scalarDocument{
			Name: s.Name, Aliases: show.OrEmpty(s.Aliases), Bits: s.Bits(), ExponentBits: s.Exponent, MantissaBits: s.Mantissa, Bias: s.Bias,
			Max: show.Number(s.Max()), SmallestNormal: show.Number(s.SmallestNormal()), Smallest: show.Number(s.Smallest()),
			Inf: s.HasInf(), NaN: s.HasNaN(), Signed: !s.Unsigned, Integer: s.Integer,
		})
	}
	return doc
}
