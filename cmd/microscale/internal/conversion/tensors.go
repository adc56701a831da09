package conversion

import (
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/verify"
)

// A tensorDocument is the error of a weight as JSON.
type tensorDocument struct {
	Name          string       `json:"name"`
	Format        string       `json:"format"`
	Rows          int          `json:"rows"`
	Cols          int          `json:"cols"`
	SQNR          show.Number  `json:"sqnr_db"`
	MeanBlockSQNR show.Number  `json:"mean_block_sqnr_db"`
	NearestSQNR   *show.Number `json:"nearest_sqnr_db,omitempty"` // without a scale search, if measured
	Cosine        show.Number  `json:"cosine"`
	MaxRelative   show.Number  `json:"max_relative"`
	Bias          show.Number  `json:"bias"`
	Saturated     int64        `json:"saturated"`
	Flushed       int64        `json:"flushed"`
	NonFinite     int64        `json:"nonfinite"`
	NonFiniteSrc  int64        `json:"nonfinite_source"`
}

func nearestSQNR(t verify.Tensor) *show.Number {
	if t.Nearest.Elements == 0 {
		return nil
	}
	return new(show.Number(t.Nearest.SQNR))
}

// tensorDocuments returns the errors of weights as JSON.
func tensorDocuments(results []verify.Tensor) []tensorDocument {
	documents := make([]tensorDocument, len(results))
	for i, t := range results {
		r := t.Result
		documents[i] = tensorDocument{
			Name: t.Name, Format: t.Format, Rows: t.Rows, Cols: t.Cols,
			SQNR: show.Number(r.SQNR), MeanBlockSQNR: show.Number(r.MeanBlockSQNR), Cosine: show.Number(r.Cosine),
			MaxRelative: show.Number(r.MaxRelative), Bias: show.Number(r.Bias),
			NearestSQNR: nearestSQNR(t),
			Saturated:   r.Saturated, Flushed: r.Flushed, NonFinite: r.NonFinite, NonFiniteSrc: r.NonFiniteWant,
		}
	}
	return documents
}
