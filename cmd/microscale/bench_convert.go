package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

func benchQuantizeCommand() *cobra.Command {
	cmd := benchWork("quantize --format NAME", "Measure quantizing a matrix",
		`Measure quantizing an M×K matrix. The rate counts the bytes of the source; the
limit streams the same bytes in and out. The amax is given to formats with a
global scale, so that they read the source once; formats with one scale for the
tensor read it twice, and so does their limit.`)
	cmd.Example = `  microscale bench quantize --format mxfp8
  microscale bench quantize --format nvfp4 --from bf16 --threads 2 --json
  microscale bench quantize --format mxfp8 --both
  microscale bench quantize --format mxfp4 --unfused`
	w := addConversion(cmd, format.F32, format.BF16)
	both := cmd.Flags().Bool("both", false, "make a rowwise and a columnwise copy, as training does; the limit streams both out")
	unfused := cmd.Flags().Bool("unfused", false, "measure amax, scaling and cast as separate passes too")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 4 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.conversion(cmd)
		if err != nil {
			return err
		}
		measure, write := (*bench.Team).Quantize, printResult
		switch {
		case *both && *unfused:
			return show.Misuse("--both: unsupported with --unfused: omit one")
		case *both:
			measure = (*bench.Team).QuantizeRowwiseColumnwise
		case *unfused:
			if err := c.Separable(); err != nil {
				return show.Misuse("--unfused: %v", err)
			}
			measure, write = (*bench.Team).Unfused, printUnfused
		}
		return b.run(cmd, write, func() ([]bench.Result, error) { return measure(b.Team, &b.memory, c, *b.budget) })
	}
	return cmd
}

func benchDequantizeCommand() *cobra.Command {
	cmd := benchWork("dequantize --format NAME", "Measure decoding a matrix",
		`Measure decoding an M×K matrix from its codes and scales. The rate counts the
bytes of the values; the limit streams the same bytes in and out.`)
	cmd.Example = `  microscale bench dequantize --format mxfp8
  microscale bench dequantize --format nvfp4 --threads 2 --json`
	w := addConversion(cmd, format.F32)
	b := addBench(cmd, benchDefaults{threads: 1, budget: 4 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.conversion(cmd)
		if err != nil {
			return err
		}
		return b.run(cmd, printResult, func() ([]bench.Result, error) { return b.Dequantize(&b.memory, c, *b.budget) })
	}
	return cmd
}

// conversionFlags select the matrix and its format.
type conversionFlags struct {
	block *flags.Choice[quant.Format]
	from  *flags.Choice[*format.Scalar]
	m, k  *int
}

// addConversion gives cmd those flags. The first source is the default of --from.
func addConversion(cmd *cobra.Command, sources ...*format.Scalar) conversionFlags {
	return conversionFlags{
		block: flags.AddFormat(cmd),
		from: flags.AddScalar(cmd, "from", "elements of the matrix, `NAME`: "+strings.Join(flags.Names(sources), ", "), sources[0].Name,
			sources...),
		m: cmd.Flags().Int("m", 0, fmt.Sprintf("rows `M` (default enough for %d MB, at most %d)", bench.DRAMBytes/1_000_000, bench.MaxSize)),
		k: cmd.Flags().Int("k", 8192, "columns `K`"),
	}
}

// conversion returns the conversion of the flags.
func (w conversionFlags) conversion(cmd *cobra.Command) (bench.Conversion, error) {
	c := bench.Conversion{Format: w.block.Value, Source: w.from.Value, Rows: *w.m, Cols: *w.k}
	if err := needFormat(w.block); err != nil {
		return c, err
	}
	if err := checkSizes(cmd); err != nil {
		return c, err
	}
	if c.Rows == 0 {
		c.Rows = bench.DRAMRows(c.Cols, c.Source)
	}
	return c, nil
}
