package summary

import (
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/verify"
)

// A tensorDocument is the error of a weight as JSON.
type tensorDocument struct {
	Name          string      `json:"name"`
	Format        string      `json:"format"`
	Rows          int         `json:"rows"`
	Cols          int         `json:"cols"`
	SQNR          cli.Number  `json:"sqnr_db"`
	MeanBlockSQNR cli.Number  `json:"mean_block_sqnr_db"`
	NearestSQNR   *cli.Number `json:"nearest_sqnr_db,omitempty"` // without a scale search, if measured
	Cosine        cli.Number  `json:"cosine"`
	MaxRelative   cli.Number  `json:"max_relative"`
	Bias          cli.Number  `json:"bias"`
	Saturated     int64       `json:"saturated"`
	Flushed       int64       `json:"flushed"`
	NonFinite     int64       `json:"nonfinite"`
	NonFiniteSrc  int64       `json:"nonfinite_source"`
}

func nearestSQNR(t verify.Tensor) *cli.Number {
	if t.Nearest.Elements == 0 {
		return nil
	}
	return new(cli.Number(t.Nearest.SQNR))
}

// tensorDocuments returns the errors of weights as JSON.
func tensorDocuments(results []verify.Tensor) []tensorDocument {
	documents := make([]tensorDocument, len(results))
	for i, t := range results {
		r := t.Result
		documents[i] = tensorDocument{
			Name: t.Name, Format: t.Format, Rows: t.Rows, Cols: t.Cols,
			SQNR: cli.Number(r.SQNR), MeanBlockSQNR: cli.Number(r.MeanBlockSQNR), Cosine: cli.Number(r.Cosine), MaxRelative: cli.Number(r.MaxRelative), Bias: cli.Number(r.Bias),
			NearestSQNR: nearestSQNR(t),
			Saturated:   r.Saturated, Flushed: r.Flushed, NonFinite: r.NonFinite, NonFiniteSrc: r.NonFiniteWant,
		}
	}
	return documents
}
