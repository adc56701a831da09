package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// An llmDocument is one test of a language model as JSON.
type llmDocument struct {
	Test     string      `json:"test"`
	Threads  int         `json:"threads"`
	Tokens   int         `json:"tokens"`
	Seconds  show.Number `json:"seconds"` // median, of all tokens
	Rate     show.Number `json:"tokens_per_second"`
	Best     show.Number `json:"best_tokens_per_second"`
	Spread   show.Number `json:"spread"` // median absolute deviation as a share of the median
	Runs     int         `json:"runs"`
	Limit    show.Number `json:"limit"` // tokens per second
	LimitBy  string      `json:"limit_by"`
	Fraction show.Number `json:"fraction"`
	Bytes    int         `json:"bytes_per_token"` // of weights
	Load     show.Number `json:"load_seconds"`
	Resident int64       `json:"resident"` // peak resident bytes; 0 if unknown
	Busy     bool        `json:"busy"`
}

func llmDocuments(r bench.LLMResult, threads int) (docs []llmDocument) {
	for _, t := range r.Tests {
		docs = append(docs, llmDocument{
			t.Name, threads, t.Tokens, show.Number(t.Time.Median), show.Number(t.Rate()), show.Number(float64(t.Tokens) / t.Time.Min),
			show.Number(t.Time.Spread()), t.Time.Runs,
			show.Number(t.Limit), t.LimitBy, show.Number(t.Fraction()), r.Bytes, show.Number(r.Load), r.Resident, t.Time.Busy,
		})
	}
	return docs
}

func printLLM(w io.Writer, r bench.LLMResult, threads int) error {
	t := show.NewTable(show.Left("test"), show.Right("tokens/s"), show.Right("best"), show.Right("limit"), show.Right("fraction"),
		show.Left("limited by"))
	for _, test := range r.Tests {
		t.AppendRow(table.Row{test.Name, show.ThreeDigits(test.Rate()), show.ThreeDigits(float64(test.Tokens) / test.Time.Min),
			show.ThreeDigits(test.Limit), fmt.Sprintf("%.2f", test.Fraction()), test.LimitBy})
	}
	memory := "unknown"
	if r.Resident > 0 {
		memory = show.BytesText(float64(r.Resident))
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s, %s of weights per token, loaded in %s, peak memory %s\n", t.Render(), show.Counted(threads, "thread"),
		show.BytesText(float64(r.Bytes)), secondsText(r.Load), memory)
	return err
}
