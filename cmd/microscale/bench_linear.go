package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/recipe"
)

func benchLinearCommand() *cobra.Command {
	cmd := benchWork("linear", "Measure a linear layer, forward and backward, with recipes",
		`Measure the forward and the backward pass of a linear layer with K inputs and N
outputs under each recipe: three products, and the quantization of their six
operands. The rate counts 6·M·N·K operations; the limit is the peak of the
instruction that bounds the kernel of the forward product. The products are also
measured alone.`)
	cmd.Example = `  microscale bench linear
  microscale bench linear --recipes mxfp8,nvfp4 --threads 2 --json`
	recipes := flags.AddRecipes(cmd, "")
	m := cmd.Flags().Int("m", 32*128, "tokens `M`")
	n := cmd.Flags().Int("n", 1024, "outputs `N`")
	k := cmd.Flags().Int("k", 1024, "inputs `K`")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 3 * time.Second, spent: "for each recipe"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkSizes(cmd); err != nil {
			return err
		}
		list := flags.WithBaseline(recipes.Recipes)
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
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: measured %s\n", show.Printable(r.Name))
			all, steps = append(all, t), append(steps, t.Step)
		}
		return b.print(cmd, steps, linearDocuments(all, recipes.Recipes), func(w io.Writer) error { return printLinear(w, all) })
	}
	return cmd
}

// divisible returns an error if a recipe does not support the sizes.
func divisible(recipes []recipe.Recipe, m, n, k int) error {
	for i := range recipes {
		r := &recipes[i]
		rows, cols := r.Divisor()
		for _, s := range []struct {
			flag           string
			size, multiple int
		}{{"m", m, rows}, {"n", n, max(rows, cols)}, {"k", k, cols}} {
			if s.size%s.multiple != 0 {
				return show.Misuse("--%s %d: recipe %s needs a multiple of %d", s.flag, s.size, r.Name, s.multiple)
			}
		}
	}
	return nil
}
