package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/recipe"
)

// baselineRecipe is the recipe that others are compared with.
const baselineRecipe = "bf16"

func benchLinearCommand() *cobra.Command {
	cmd := benchWork("linear", "a linear layer, forward and backward, under recipes", `Measures the forward and the backward pass of a linear layer of K inputs and N
outputs under each recipe: three products, and the quantization of their six
operands. The rate counts 6·M·N·K operations; the limit is the peak of the
instruction that the kernel of the forward product consists of. The products are
also measured alone.`)
	cmd.Example = `  microscale bench linear
  microscale bench linear --recipes mxfp8,nvfp4 --threads 2 --json`
	recipes := addRecipes(cmd, "")
	m := cmd.Flags().Int("m", 32*128, "tokens `M`")
	n := cmd.Flags().Int("n", 1024, "outputs `N`")
	k := cmd.Flags().Int("k", 1024, "inputs `K`")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 3 * time.Second, spent: "for each recipe"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkSizes(cmd); err != nil {
			return err
		}
		list := withBaseline(recipes.recipes)
		if err := divisible(list, *m, *n, *k); err != nil {
			return err
		}
		if err := b.begin(); err != nil {
			return err
		}
		defer b.Close()
		var all []bench.Training
		var steps []bench.Result
		for _, r := range list {
			t, err := b.Linear(bench.Layer{Tokens: *m, In: *k, Out: *n}, r, *b.budget)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: measured %s\n", printable(r.Name))
			all, steps = append(all, t), append(steps, t.Step)
		}
		b.warn(cmd, steps)
		out := cmd.OutOrStdout()
		if *b.asJSON {
			return printJSON(out, linearDocuments(all, recipes.recipes))
		}
		if err := b.printMachine(out); err != nil {
			return err
		}
		return printLinear(out, all)
	}
	return cmd
}

// divisible refuses sizes that one of the recipes cannot quantize.
func divisible(recipes []recipe.Recipe, m, n, k int) error {
	for i := range recipes {
		r := &recipes[i]
		rows, cols := r.Divisor()
		for _, s := range []struct {
			flag        string
			size, least int
		}{{"m", m, rows}, {"n", n, max(rows, cols)}, {"k", k, cols}} {
			if s.size%s.least != 0 {
				return misuse("--%s %d: the recipe %s takes multiples of %d", s.flag, s.size, r.Name, s.least)
			}
		}
	}
	return nil
}

// withBaseline returns the recipes with the baseline first.
func withBaseline(recipes []recipe.Recipe) []recipe.Recipe {
	base, err := recipe.Lookup(baselineRecipe)
	if err != nil {
		panic(err) // a row of the table
	}
	list := []recipe.Recipe{base}
	for _, r := range recipes {
		if r.Name != baselineRecipe {
			list = append(list, r)
		}
	}
	return list
}

// linearDocument is a layer under one recipe as JSON.
type linearDocument struct {
	benchDocument
	Recipe   string `json:"recipe"`
	Forward  number `json:"forward_seconds"`
	Backward number `json:"backward_seconds"`
	Products number `json:"gemm_seconds"`  // of the three products alone
	Rest     number `json:"other_seconds"` // of the step, beside them
	Ratio    number `json:"over_bf16"`     // the time of the step, relative to that under bf16
}

// linearDocuments returns those of the recipes in the order asked for, then that of
// the baseline if it was not. Of all, the baseline is the first.
func linearDocuments(all []bench.Training, asked []recipe.Recipe) []linearDocument {
	var documents []linearDocument
	for _, t := range all {
		documents = append(documents, linearDocument{
			benchDocuments([]bench.Result{t.Step})[0], t.Recipe, number(t.Forward.Median), number(t.Backward.Median),
			number(t.Products.Median), number(t.Other.Median), number(t.Step.Time.Median / all[0].Step.Time.Median),
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

// printLinear prints a line for each recipe, the baseline first.
func printLinear(w io.Writer, all []bench.Training) error {
	t := newTable(column{"recipe", false}, column{"forward", true}, column{"backward", true}, column{"both", true}, column{"±", true}, column{"products", true}, column{"other", true},
		column{"/ " + baselineRecipe, true}, column{"of limit", true})
	for _, r := range all {
		t.AppendRow(table.Row{
			r.Recipe, secondsText(r.Forward.Median), secondsText(r.Backward.Median), secondsText(r.Step.Time.Median), spreadText(r.Step), secondsText(r.Products.Median), secondsText(max(r.Other.Median, 0)),
			fmt.Sprintf("%.2f", r.Step.Time.Median/all[0].Step.Time.Median), fmt.Sprintf("%.2f", r.Step.Fraction()),
		})
	}
	first := all[0].Step
	_, err := fmt.Fprintf(w, `linear layer %d → %d, %s, %s; %s: %s %s

%s

products  the three products alone, of operands quantized beforehand
other     the rest: quantizing six operands, rounding, memory
/ bf16    time of both passes relative to that under bf16
of limit  6·M·N·K operations as a share of the instruction's peak
`, first.K, first.N, countText(first.M, "token"), countText(first.Threads, "thread"), baselineRecipe, threeDigits(first.Rate()), first.Unit, t.Render())
	return err
}
