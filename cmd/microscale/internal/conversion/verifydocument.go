package conversion

import (
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/verify"
)

// A VerifyDocument is the result of a comparison as JSON.
type VerifyDocument struct {
	OK          bool               `json:"ok"`
	Problems    []problemDocument  `json:"problems"`
	Compared    checkedDocument    `json:"compared"`
	Notes       []string           `json:"notes"` // what may be a fault
	NotCompared []string           `json:"not_compared"`
	Tensors     []verifiedDocument `json:"tensors"`
	Blocks      []worstDocument    `json:"blocks"`
}

// A checkedDocument counts the weights by the way they were compared.
type checkedDocument struct {
	Bounded     int `json:"bounded"`      // quantized: decoded, within the bound of the format
	Equal       int `json:"equal"`        // quantized, as the source is, and decoded to the same values
	Calibrated  int `json:"calibrated"`   // quantized by a method whose codes are not the nearest: scales within the bound
	DecodedOnly int `json:"decoded_only"` // in types that are only decoded: within the bound of their blocks
	Unbounded   int `json:"unbounded"`    // the same without a bound of an element: the least SQNR of a weight
	Rounded     int `json:"rounded"`      // of another dtype
	Identical   int `json:"identical"`    // to the bit
}

// A verifiedDocument is a weight, its error, and how it was compared.
type verifiedDocument struct {
	tensorDocument
	Check string `json:"check"`
}

// Unreadable returns the document of a comparison whose DST cannot be opened.
func Unreadable(err error) any {
	return VerifyDocument{Problems: []problemDocument{{Text: show.OneLine(err)}}, Notes: []string{}, NotCompared: []string{},
		Tensors: []verifiedDocument{}, Blocks: []worstDocument{}}
}

func newVerifyDocument(r *verify.Report) VerifyDocument {
	doc := VerifyDocument{
		OK:          r.OK(),
		Problems:    problemDocuments(r.Problems),
		Notes:       show.OrEmpty(r.Notes),
		NotCompared: show.OrEmpty(r.NotCompared),
		Blocks:      worstDocuments(r.Blocks),
		Tensors:     []verifiedDocument{},
		Compared: checkedDocument{
			r.Checked(verify.Bounded),
			r.Checked(verify.Equal),
			r.Checked(verify.Calibrated),
			r.Checked(verify.DecodedOnly),
			r.Checked(verify.Unbounded),
			r.Checked(verify.Rounded),
			r.Checked(verify.Identical),
		},
	}
	for i, t := range tensorDocuments(r.Tensors) {
		doc.Tensors = append(doc.Tensors, verifiedDocument{t, r.Checks[i].String()})
	}
	return doc
}

// worstDocument counts the damaged blocks of a weight and locates its worst block.
type worstDocument struct {
	Tensor     string      `json:"tensor"`
	Count      int64       `json:"blocks"`
	ZeroScales int64       `json:"zero_scales"`
	Lost       int64       `json:"lost"`       // blocks whose values all became zero
	Beyond     int64       `json:"beyond"`     // elements beyond the bound of the format
	BadScales  int64       `json:"bad_scales"` // scales beyond the bound
	Unchecked  int64       `json:"unchecked"`  // elements of blocks without a bound
	Worst      show.Number `json:"worst"`      // dB; null: exact, or all zeros
	Row        int         `json:"row"`
	Col        int         `json:"column"`
	Width      int         `json:"width"`
}

func worstDocuments(blocks []verify.Blocks) []worstDocument {
	documents := make([]worstDocument, len(blocks))
	for i, b := range blocks {
		documents[i] = worstDocument{b.Tensor, b.Count, b.ZeroScales, b.Lost, b.Beyond, b.BadScales, b.Unchecked, show.Number(b.Worst), b.Row,
			b.Col, b.Width}
	}
	return documents
}
