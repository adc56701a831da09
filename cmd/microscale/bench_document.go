package main

import (
	"math"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// benchDocument is one result as JSON.
type benchDocument struct {
	Op       string      `json:"op"`
	Format   string      `json:"format"`
	From     string      `json:"from,omitempty"`
	M        int         `json:"m"`
	N        int         `json:"n"`
	K        int         `json:"k"`
	Packed   bool        `json:"packed,omitempty"` // B was packed beforehand
	Both     bool        `json:"both,omitempty"`   // rowwise and columnwise copies
	Threads  int         `json:"threads"`
	Kernel   string      `json:"kernel"`
	Seconds  show.Number `json:"seconds"`
	Spread   show.Number `json:"spread"` // median absolute deviation, as a share of the median; null if unknown
	Runs     int         `json:"runs"`
	Parts    int         `json:"parts,omitempty"` // equal parts of the work, one for each run; seconds are of all
	Busy     bool        `json:"busy"`            // other programs used the processors during most runs
	Rate     show.Number `json:"rate"`
	Unit     string      `json:"unit"`
	Limit    show.Number `json:"limit"` // null: this is a limit itself
	LimitBy  string      `json:"limit_by,omitempty"`
	Fraction show.Number `json:"fraction"`
}

func benchDocuments(results []bench.Result) []benchDocument {
	docs := make([]benchDocument, len(results))
	for i, r := range results {
		docs[i] = benchDocument{
			Op: r.Op, Format: r.Format, From: r.Source, M: r.M, N: r.N, K: r.K, Packed: r.Packed, Both: r.Both, Threads: r.Threads, Kernel: r.Kernel,
			Seconds: show.Number(r.Time.Median), Spread: show.Number(r.Time.Spread()), Runs: r.Time.Runs, Parts: r.Time.Parts, Busy: r.Time.Busy,
			Rate: show.Number(r.Rate()), Unit: string(r.Unit), Limit: show.Number(r.Limit), LimitBy: r.LimitBy, Fraction: show.Number(r.Fraction()),
		}
	}
	return docs
}

// sweepDocument is a sweep as JSON.
type sweepDocument struct {
	Formats []sweptDocument `json:"formats"`
	Results []benchDocument `json:"results"` // by size and format: product, then quantizing both operands; few rows; limits
	Report  string          `json:"report,omitempty"`
}

// sweptDocument is one format of a sweep.
type sweptDocument struct {
	Format string `json:"format"`
	// smallest size from which on it is faster than bf16; null if none, or for a format without scales
	PaysFrom *int                  `json:"pays_from"`
	Estimate show.Number           `json:"break_even_estimate"`
	Sizes    []sweptAtSizeDocument `json:"sizes"`
}

type sweptAtSizeDocument struct {
	Size     int         `json:"size"`
	Product  show.Number `json:"product_seconds"`
	Quantize show.Number `json:"quantize_seconds"` // both operands, from BF16
	Share    show.Number `json:"quantize_share"`
	Speedup  show.Number `json:"product_over_bf16"` // speed relative to bf16
	Total    show.Number `json:"total_over_bf16"`   // the same, quantizing included
}

func newSweepDocument(s *bench.Sweep, r *report.Speed, path string) sweepDocument {
	doc := sweepDocument{Results: benchDocuments(s.Results()), Report: path}
	for i := range r.Series {
		f := &r.Series[i]
		d := sweptDocument{Format: f.Name, Estimate: show.Number(math.NaN())}
		if s.Formats[i].Scaled() {
			d.Estimate = show.Number(r.BreakEven(f))
			if from := r.PaysFrom(f); from > 0 {
				d.PaysFrom = &from
			}
		}
		for _, p := range f.Points {
			product, total := r.Speedup(p)
			d.Sizes = append(d.Sizes, sweptAtSizeDocument{p.Size, show.Number(p.Product), show.Number(p.Quantize), show.Number(p.Share()),
				show.Number(product), show.Number(total)})
		}
		doc.Formats = append(doc.Formats, d)
	}
	return doc
}
