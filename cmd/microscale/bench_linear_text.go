package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/recipe"
)

// linearDocument is a layer under one recipe as JSON.
type linearDocument struct {
	benchDocument
	Recipe   string      `json:"recipe"`
	Forward  show.Number `json:"forward_seconds"`
	Backward show.Number `json:"backward_seconds"`
	Products show.Number `json:"gemm_seconds"`  // the three products alone
	Rest     show.Number `json:"other_seconds"` // the rest of the step
	Ratio    show.Number `json:"over_bf16"`     // time of the step relative to bf16
}

// linearDocuments returns the recipes in the order of the flag, then the baseline if the flag
// lacks it. The baseline is the first of all.
func linearDocuments(all []bench.Training, asked []recipe.Recipe) []linearDocument {
	var documents []linearDocument
	for _, t := range all {
		documents = append(documents, linearDocument{
			benchDocuments([]bench.Result{t.Step})[0], t.Recipe, show.Number(t.Forward.Median), show.Number(t.Backward.Median),
			show.Number(t.Products.Median), show.Number(t.Other.Median), show.Number(t.Step.Time.Median / all[0].Step.Time.Median),
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
	t := show.NewTable(show.Left("recipe"), show.Right("forward"), show.Right("backward"), show.Right("both"), show.Right("±"),
		show.Right("products"), show.Right("other"),
		show.Right("/ "+flags.BaselineRecipe), show.Right("of limit"))
	for _, r := range all {
		t.AppendRow(table.Row{
			r.Recipe, secondsText(r.Forward.Median), secondsText(r.Backward.Median), secondsText(r.Step.Time.Median), spreadText(r.Step),
			secondsText(r.Products.Median), secondsText(max(r.Other.Median, 0)),
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
`, first.K, first.N, show.Counted(first.M, "token"), show.Counted(first.Threads, "thread"), flags.BaselineRecipe,
		show.ThreeDigits(first.Rate()), first.Unit, t.Render())
	return err
}
