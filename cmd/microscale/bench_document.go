package main

import (
	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/cli"
)

// benchDocument is one result as JSON.
type benchDocument struct {
	Op       string     `json:"op"`
	Format   string     `json:"format"`
	From     string     `json:"from,omitempty"`
	M        int        `json:"m"`
	N        int        `json:"n"`
	K        int        `json:"k"`
	Packed   bool       `json:"packed,omitempty"` // B was packed beforehand
	Both     bool       `json:"both,omitempty"`   // rowwise and columnwise copies
	Threads  int        `json:"threads"`
	Kernel   string     `json:"kernel"`
	Seconds  cli.Number `json:"seconds"`
	Spread   cli.Number `json:"spread"` // median absolute deviation, as a share of the median; null if unknown
	Runs     int        `json:"runs"`
	Parts    int        `json:"parts,omitempty"` // equal parts of the work, one for each run; seconds are of all
	Busy     bool       `json:"busy"`            // other programs used the processors during most runs
	Rate     cli.Number `json:"rate"`
	Unit     string     `json:"unit"`
	Limit    cli.Number `json:"limit"` // null: this is a limit itself
	LimitBy  string     `json:"limit_by,omitempty"`
	Fraction cli.Number `json:"fraction"`
}

func benchDocuments(results []bench.Result) []benchDocument {
	docs := make([]benchDocument, len(results))
	for i, r := range results {
		docs[i] = benchDocument{
			Op: r.Op, Format: r.Format, From: r.Source, M: r.M, N: r.N, K: r.K, Packed: r.Packed, Both: r.Both, Threads: r.Threads, Kernel: r.Kernel,
			Seconds: cli.Number(r.Time.Median), Spread: cli.Number(r.Time.Spread()), Runs: r.Time.Runs, Parts: r.Time.Parts, Busy: r.Time.Busy,
			Rate: cli.Number(r.Rate()), Unit: string(r.Unit), Limit: cli.Number(r.Limit), LimitBy: r.LimitBy, Fraction: cli.Number(r.Fraction()),
		}
	}
	return docs
}
