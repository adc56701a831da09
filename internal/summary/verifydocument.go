package summary

import (
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/verify"
)

// VerifyDocument is the result of a comparison as JSON.
type VerifyDocument struct {
	OK          bool               `json:"ok"`
	Problems    []ProblemDocument  `json:"problems"`
	Compared    checkedDocument    `json:"compared"`
	NotCompared []string           `json:"not_compared"`
	Tensors     []VerifiedDocument `json:"tensors"`
	Blocks      []WorstDocument    `json:"blocks"`
}

// A checkedDocument counts the weights that were compared in each way.
type checkedDocument struct {
	Bounded   int `json:"bounded"`   // quantized: decoded, within the bound of the format
	Rounded   int `json:"rounded"`   // of another dtype
	Identical int `json:"identical"` // to the bit
}

// A VerifiedDocument is a weight, its error, and how it was compared.
type VerifiedDocument struct {
	TensorDocument
	Check string `json:"check"`
}

// NewVerifyDocument returns the result of a comparison as JSON.
func NewVerifyDocument(r *verify.Report) VerifyDocument {
	doc := VerifyDocument{OK: r.OK(), Problems: problemDocuments(r.Problems), NotCompared: cli.OrEmpty(r.NotCompared), Blocks: worstDocuments(r.Blocks), Tensors: []VerifiedDocument{},
		Compared: checkedDocument{r.Checked(verify.Bounded), r.Checked(verify.Rounded), r.Checked(verify.Identical)}}
	for i, t := range TensorDocuments(r.Tensors) {
		doc.Tensors = append(doc.Tensors, VerifiedDocument{t, r.Checks[i].String()})
	}
	return doc
}

// WorstDocument counts the damaged blocks of a weight and locates its worst block.
type WorstDocument struct {
	Tensor     string     `json:"tensor"`
	Count      int64      `json:"blocks"`
	ZeroScales int64      `json:"zero_scales"`
	Lost       int64      `json:"lost"`       // blocks of values that became zeros
	Beyond     int64      `json:"beyond"`     // elements beyond the bound of the format
	BadScales  int64      `json:"bad_scales"` // scales beyond it
	Unchecked  int64      `json:"unchecked"`  // elements of blocks without a bound
	Worst      cli.Number `json:"worst"`      // dB; null: exact, or all zeros
	Row        int        `json:"row"`
	Col        int        `json:"column"`
	Width      int        `json:"width"`
}

func worstDocuments(blocks []verify.Blocks) []WorstDocument {
	documents := make([]WorstDocument, len(blocks))
	for i, b := range blocks {
		documents[i] = WorstDocument{b.Tensor, b.Count, b.ZeroScales, b.Lost, b.Beyond, b.BadScales, b.Unchecked, cli.Number(b.Worst), b.Row, b.Col, b.Width}
	}
	return documents
}
