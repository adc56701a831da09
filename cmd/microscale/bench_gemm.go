package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/quant"
)

func benchGemmCommand() *cobra.Command {
	cmd := benchWork("gemm --format NAME", "Measure the product of two quantized matrices",
		`Measure C = A·Bᵀ of an M×K and an N×K matrix, packing included. The rate counts
2·M·N·K operations; the limit is the peak of the instruction that bounds the
kernel.`)
	cmd.Example = `  microscale bench gemm --format mxfp8
  microscale bench gemm --format nvfp4 --m 512 --n 512 --k 512 --threads 2
  microscale bench gemm --format mxfp8 --m 16 --packed --json`
	packed := cmd.Flags().Bool("packed", false, "pack B beforehand, as for weights")
	addProduct(cmd, bench.Product{M: 2048, N: 2048, K: 2048}, func(b *benchRun, p bench.Product) ([]bench.Result, error) {
		p.Packed = *packed
		return b.Gemm(p, *b.budget)
	})
	return cmd
}

func benchGemvCommand() *cobra.Command {
	cmd := benchWork("gemv --format NAME", "Measure a few vectors by a quantized matrix from DRAM",
		`Measure the product of M vectors and an N×K matrix of weights. It cycles through
256 MB of such matrices, so that they come from DRAM. For small matrices, part
of that is the header of each. The rate counts the bytes of codes and scales;
the limit is reading memory.`)
	cmd.Example = `  microscale bench gemv --format mxfp8
  microscale bench gemv --format mxfp4 --m 4 --activations mxint8 --json`
	addProduct(cmd, bench.Product{A: quant.BF16, M: 1, N: 16384, K: 4096}, func(b *benchRun, p bench.Product) ([]bench.Result, error) {
		return b.Gemv(p, *b.budget)
	})
	return cmd
}

// patience is the time of a product above which a warning is printed: a whole measurement
// otherwise takes less.
const patience = 8 * time.Second

// addProduct gives cmd the flags and the code of a command that measures products. Without
// --activations, A has the default's format or else that of B.
func addProduct(cmd *cobra.Command, defaults bench.Product, measure func(*benchRun, bench.Product) ([]bench.Result, error)) {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, f.Name)
	}
	block := flags.AddFormat(cmd)
	other := flags.AddChoice(cmd, "activations", "block format `NAME` of A (default "+cmp.Or(defaults.A.Name, "that of --format")+")", "",
		names, quant.Lookup)
	m := cmd.Flags().Int("m", defaults.M, "rows `M` of A and C")
	n := cmd.Flags().Int("n", defaults.N, "rows `N` of B, columns of C")
	k := cmd.Flags().Int("k", defaults.K, "columns `K` of A and B")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 4 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needFormat(block); err != nil {
			return err
		}
		if err := checkSizes(cmd); err != nil {
			return err
		}
		p := bench.Product{A: defaults.A, B: block.Value, M: *m, N: *n, K: *k}
		switch {
		case other.Given:
			p.A = other.Value
		case p.A.Name == "":
			p.A = p.B
		}
		return b.run(cmd, printResult, func() ([]bench.Result, error) {
			if once, err := b.Estimate(p); err != nil {
				return nil, err
			} else if once > patience {
				fmt.Fprintf(cmd.ErrOrStderr(), "microscale: one product takes about %s\n", secondsText(once.Seconds()))
			}
			return measure(b, p)
		})
	}
}

func needFormat(block *flags.Choice[quant.Format]) error {
	if !block.Given {
		return show.Misuse("--format is missing: name a block format (microscale formats lists them)")
	}
	return nil
}

// checkSizes validates --m, --n and --k.
func checkSizes(cmd *cobra.Command) error {
	sizes := map[string]int{}
	for _, name := range []string{"m", "n", "k"} {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		v, err := strconv.Atoi(f.Value.String())
		if f.Changed && (err != nil || v < 1 || v > bench.MaxSize) {
			return show.Misuse("--%s %s: give a size from 1 to %d", name, f.Value, bench.MaxSize)
		}
		sizes[name] = v
	}
	for _, matrix := range [][2]string{{"m", "k"}, {"n", "k"}, {"m", "n"}} {
		if err := bench.CheckMatrix(sizes[matrix[0]], sizes[matrix[1]]); err != nil {
			return show.Misuse("--%s and --%s: %v", matrix[0], matrix[1], err)
		}
	}
	return nil
}
