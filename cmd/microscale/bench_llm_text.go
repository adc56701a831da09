package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/cli"
)

// An llmDocument is one test of a language model as JSON.
type llmDocument struct {
	Test     string     `json:"test"`
	Threads  int        `json:"threads"`
	Tokens   int        `json:"tokens"`
	Seconds  cli.Number `json:"seconds"` // median, of all tokens
	Rate     cli.Number `json:"tokens_per_second"`
	Best     cli.Number `json:"best_tokens_per_second"`
	Spread   cli.Number `json:"spread"` // median absolute deviation as a share of the median
	Runs     int        `json:"runs"`
	Limit    cli.Number `json:"limit"` // tokens per second
	LimitBy  string     `json:"limit_by"`
	Fraction cli.Number `json:"fraction"`
	Bytes    int        `json:"bytes_per_token"` // of weights
	Load     cli.Number `json:"load_seconds"`
	Resident int64      `json:"resident"` // peak resident bytes; 0 if unknown
	Busy     bool       `json:"busy"`
}

func llmDocuments(r bench.LLMResult, threads int) (docs []llmDocument) {
	for _, t := range r.Tests {
		docs = append(docs, llmDocument{
			t.Name, threads, t.Tokens, cli.Number(t.Time.Median), cli.Number(t.Rate()), cli.Number(float64(t.Tokens) / t.Time.Min), cli.Number(t.Time.Spread()), t.Time.Runs,
			cli.Number(t.Limit), t.LimitBy, cli.Number(t.Fraction()), r.Bytes, cli.Number(r.Load), r.Resident, t.Time.Busy,
		})
	}
	return docs
}

func printLLM(w io.Writer, r bench.LLMResult, threads int) error {
	t := cli.NewTable(cli.Left("test"), cli.Right("tokens/s"), cli.Right("best"), cli.Right("limit"), cli.Right("fraction"), cli.Left("limited by"))
	for _, test := range r.Tests {
		t.AppendRow(table.Row{test.Name, threeDigits(test.Rate()), threeDigits(float64(test.Tokens) / test.Time.Min), threeDigits(test.Limit), fmt.Sprintf("%.2f", test.Fraction()), test.LimitBy})
	}
	memory := "unknown"
	if r.Resident > 0 {
		memory = cli.BytesText(float64(r.Resident))
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s, %s of weights per token, loaded in %s, peak memory %s\n", t.Render(), cli.Counted(threads, "thread"), cli.BytesText(float64(r.Bytes)), secondsText(r.Load), memory)
	return err
}
