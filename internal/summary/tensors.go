package summary

import (
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/verify"
)

// TensorDocument is the error of a weight as JSON.
type TensorDocument struct {
	Name          string      `json:"name"`
	Format        string      `json:"format"`
	Rows          int         `json:"rows"`
	Cols          int         `json:"cols"`
	SQNR          cli.Number  `json:"sqnr_db"`
	MeanBlockSQNR cli.Number  `json:"mean_block_sqnr_db"`
	NearestSQNR   *cli.Number `json:"nearest_sqnr_db,omitempty"` // without a search of scales, where that was measured
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

// TensorDocuments returns the errors of weights as JSON.
func TensorDocuments(results []verify.Tensor) []TensorDocument {
	documents := make([]TensorDocument, len(results))
	for i, t := range results {
		r := t.Result
		documents[i] = TensorDocument{
			Name: t.Name, Format: t.Format, Rows: t.Rows, Cols: t.Cols,
			SQNR: cli.Number(r.SQNR), MeanBlockSQNR: cli.Number(r.MeanBlockSQNR), Cosine: cli.Number(r.Cosine), MaxRelative: cli.Number(r.MaxRelative), Bias: cli.Number(r.Bias),
			NearestSQNR: nearestSQNR(t),
			Saturated:   r.Saturated, Flushed: r.Flushed, NonFinite: r.NonFinite, NonFiniteSrc: r.NonFiniteWant,
		}
	}
	return documents
}
