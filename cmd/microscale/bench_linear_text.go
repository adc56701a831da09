package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/recipe"
)

// linearDocument is a layer under one recipe as JSON.
type linearDocument struct {
	benchDocument
	Recipe   string     `json:"recipe"`
	Forward  cli.Number `json:"forward_seconds"`
	Backward cli.Number `json:"backward_seconds"`
	Products cli.Number `json:"gemm_seconds"`  // the three products alone
	Rest     cli.Number `json:"other_seconds"` // the rest of the step
	Ratio    cli.Number `json:"over_bf16"`     // time of the step relative to bf16
}

// linearDocuments returns the recipes in the order of the flag, then the baseline if the flag
// lacks it. The baseline is the first of all.
func linearDocuments(all []bench.Training, asked []recipe.Recipe) []linearDocument {
	var documents []linearDocument
	for _, t := range all {
		documents = append(documents, linearDocument{
			benchDocuments([]bench.Result{t.Step})[0], t.Recipe, cli.Number(t.Forward.Median), cli.Number(t.Backward.Median),
			cli.Number(t.Products.Median), cli.Number(t.Other.Median), cli.Number(t.Step.Time.Median / all[0].Step.Time.Median),
		})
	}
	place := func(d linearDocument) int {
		i := slices.IndexFunc(asked, func(r recipe.Recipe) bool { return r.Name == d.Recipe })
		if i < 0 {
			return len(asked)
		}
		return i
	}
	slices.SortFunc(documents, func(a, b linearDocument) int { return cmp.Compare(place(a), place(b)) })
	return documents
}

// printLinear prints a row for each recipe, the baseline first.
func printLinear(w io.Writer, all []bench.Training) error {
	t := cli.NewTable(cli.Left("recipe"), cli.Right("forward"), cli.Right("backward"), cli.Right("both"), cli.Right("±"), cli.Right("products"), cli.Right("other"),
		cli.Right("/ "+cli.BaselineRecipe), cli.Right("of limit"))
	for _, r := range all {
		t.AppendRow(table.Row{
			r.Recipe, secondsText(r.Forward.Median), secondsText(r.Backward.Median), secondsText(r.Step.Time.Median), spreadText(r.Step), secondsText(r.Products.Median), secondsText(max(r.Other.Median, 0)),
			fmt.Sprintf("%.2f", r.Step.Time.Median/all[0].Step.Time.Median), fmt.Sprintf("%.2f", r.Step.Fraction()),
		})
	}
	first := all[0].Step
	_, err := fmt.Fprintf(w, `linear layer %d → %d, %s, %s; %s: %s %s

%s

products  the three products alone, with operands quantized beforehand
other     the rest: quantizing six operands, rounding, memory
/ bf16    time of both passes relative to bf16
of limit  6·M·N·K operations as a share of the instruction's peak
`, first.K, first.N, cli.Counted(first.M, "token"), cli.Counted(first.Threads, "thread"), cli.BaselineRecipe, threeDigits(first.Rate()), first.Unit, t.Render())
	return err
}
