package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/quant"
)

func benchQuantizeCommand() *cobra.Command {
	cmd := benchWork("quantize --format NAME", "a matrix to a block format", `Measures quantizing an M×K matrix. The rate counts the bytes of the source; the
limit is that of streaming as many bytes in and out. Formats with a global scale
are given it, so that they read the source once; formats with one scale for the
tensor read it twice, and so does their limit.`)
	cmd.Example = `  microscale bench quantize --format mxfp8
  microscale bench quantize --format nvfp4 --from bf16 --threads 2 --json
  microscale bench quantize --format mxfp8 --both
  microscale bench quantize --format mxfp4 --unfused`
	w := addConversion(cmd, format.F32, format.BF16)
	both := cmd.Flags().Bool("both", false, "the rowwise and the columnwise copy, as training keeps them; the limit streams both out")
	unfused := cmd.Flags().Bool("unfused", false, "amax, scaling and cast as separate passes too, to show what fusing them buys")
	b := addBench(cmd, benchDefaults{threads: 1, budget: 4 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := w.conversion(cmd)
		if err != nil {
			return err
		}
		if *both && *unfused {
			return misuse("--both is for passes that are fused: leave out --unfused")
		}
		if *both {
			return b.run(cmd, printResult, func() ([]bench.Result, error) { return b.QuantizeBoth(&b.memory, c, *b.budget) })
		}
		if !*unfused {
			return b.run(cmd, printResult, func() ([]bench.Result, error) { return b.Quantize(&b.memory, c, *b.budget) })
		}
		if err := c.Separable(); err != nil {
			return misuse("--unfused: %v", err)
		}
		return b.run(cmd, printUnfused, func() ([]bench.Result, error) { return b.Unfused(&b.memory, c, *b.budget) })
	}
	return cmd
}

func benchDequantizeCommand() *cobra.Command {
	cmd := benchWork("dequantize --format NAME", "a block format to a matrix", `Measures getting an M×K matrix back from its codes and scales. The rate counts
the bytes of the values; the limit is that of streaming as many bytes in and
out.`)
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

// conversionFlags are those that say what to quantize, or to get back.
type conversionFlags struct {
	block *choice[quant.Format]
	from  *choice[*format.Scalar]
	m, k  *int
}

// addConversion gives cmd those flags; --from takes one of the sources, the first
// where it is not given.
func addConversion(cmd *cobra.Command, sources ...*format.Scalar) conversionFlags {
	return conversionFlags{
		block: addFormat(cmd),
		from:  addScalar(cmd, "from", "elements of the matrix, `NAME`: "+strings.Join(stringers(sources), ", "), sources[0].Name, sources...),
		m:     cmd.Flags().Int("m", 0, fmt.Sprintf("rows `M` (default those that make %d MB, at most %d)", dramMB, mostSize)),
		k:     cmd.Flags().Int("k", 8192, "columns `K`"),
	}
}

// conversion returns what the flags ask for.
func (w conversionFlags) conversion(cmd *cobra.Command) (bench.Conversion, error) {
	c := bench.Conversion{Format: w.block.value, Source: w.from.value, Rows: *w.m, Cols: *w.k}
	if err := needFormat(w.block); err != nil {
		return c, err
	}
	if err := checkSizes(cmd); err != nil {
		return c, err
	}
	if c.Rows == 0 {
		c.Rows = defaultRows(c.Cols, c.Source)
	}
	return c, nil
}

// evenRows is the rows of the largest block. A matrix of multiples of it has no blocks
// that are cut off.
const evenRows = 128

// defaultRows returns the rows of so many columns that come from DRAM.
func defaultRows(cols int, source *format.Scalar) int {
	rows := int(math.Ceil(dramMB * 1e6 / float64(cols*source.Bits()/8)))
	return min((rows+evenRows-1)/evenRows*evenRows, mostSize)
}

func benchGemmCommand() *cobra.Command {
	packed := new(bool)
	cmd := benchProduct(productBench{
		use: "gemm --format NAME", short: "the product of two quantized matrices",
		long: `Measures C = A·Bᵀ of an M×K and an N×K matrix, packing included. The rate counts
2·M·N·K operations; the limit is the peak of the instruction that the kernel
consists of.`,
		example: `  microscale bench gemm --format mxfp8
  microscale bench gemm --format nvfp4 --m 512 --n 512 --k 512 --threads 2
  microscale bench gemm --format mxfp8 --m 16 --packed --json`,
		m: 2048, n: 2048, k: 2048,
		packed:  packed,
		measure: func(b *benchRun, p bench.Product) ([]bench.Result, error) { return b.Gemm(p, *b.budget) },
	})
	cmd.Flags().BoolVar(packed, "packed", false, "pack B beforehand, as weights are")
	return cmd
}

func benchGemvCommand() *cobra.Command {
	return benchProduct(productBench{
		use: "gemv --format NAME", short: "a few vectors by a quantized matrix, from DRAM",
		long: `Measures the product of M vectors and an N×K matrix of weights, several of which
take turns so that they come from DRAM: 256 MB of them, of small ones much of it
what a tensor takes beside its codes and scales. The rate counts the bytes of
codes and scales; the limit is reading memory.`,
		example: `  microscale bench gemv --format mxfp8
  microscale bench gemv --format mxfp4 --m 4 --activations mxint8 --json`,
		activations: quant.BF16,
		m:           1, n: 16384, k: 4096,
		packed:  new(bool),
		measure: func(b *benchRun, p bench.Product) ([]bench.Result, error) { return b.Gemv(&b.memory, p, *b.budget) },
	})
}

// A productBench is what differs between the commands that measure products.
type productBench struct {
	use, short, long, example string
	activations               quant.Format // of A where the flag is not given; none: that of B
	m, n, k                   int          // likewise
	packed                    *bool
	measure                   func(*benchRun, bench.Product) ([]bench.Result, error)
}

// patience is how long a product takes at most without a warning: as long as all of a
// measurement takes otherwise.
const patience = 8 * time.Second

// benchProduct returns the command.
func benchProduct(d productBench) *cobra.Command {
	cmd := benchWork(d.use, d.short, d.long)
	cmd.Example = d.example
	block := addFormat(cmd)
	other := addActivations(cmd, cmp.Or(d.activations.Name, "that of --format"))
	m, n, k := addSizes(cmd, d.m, d.n, d.k)
	b := addBench(cmd, benchDefaults{threads: 1, budget: 4 * time.Second})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needFormat(block); err != nil {
			return err
		}
		if err := checkSizes(cmd); err != nil {
			return err
		}
		p := bench.Product{A: other.value, B: block.value, M: *m, N: *n, K: *k, Packed: *d.packed}
		switch {
		case other.given:
		case d.activations.Name != "":
			p.A = d.activations
		default:
			p.A = p.B
		}
		return b.run(cmd, printResult, func() ([]bench.Result, error) {
			if once, err := b.Estimate(p); err != nil {
				return nil, err
			} else if once > patience {
				fmt.Fprintf(cmd.ErrOrStderr(), "microscale: this product alone takes about %s\n", secondsText(once.Seconds()))
			}
			return d.measure(b, p)
		})
	}
	return cmd
}

// benchWork returns a bench command without its code.
func benchWork(use, short, long string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long + "\n\n" + benchHelp, Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions}
}

// addActivations gives cmd --activations, the format of A.
func addActivations(cmd *cobra.Command, initial string) *choice[quant.Format] {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, f.Name)
	}
	return addChoice(cmd, "activations", "block format `NAME` of A (default "+initial+")", "", names, quant.Lookup)
}

// addSizes gives cmd --m, --n and --k.
func addSizes(cmd *cobra.Command, initialM, initialN, initialK int) (m, n, k *int) {
	return cmd.Flags().Int("m", initialM, "rows `M` of A and C"), cmd.Flags().Int("n", initialN, "rows `N` of B, columns of C"), cmd.Flags().Int("k", initialK, "columns `K` of A and B")
}

func needFormat(block *choice[quant.Format]) error {
	if !block.given {
		return misuse("--format is missing: name a block format (microscale formats lists them)")
	}
	return nil
}

// Sizes that are measured at most: of a dimension, and of a matrix (1.07 GB of
// float32, 16384 × 16384). Matrices of several formats are held at a time.
const (
	mostSize     = 1 << 20
	mostElements = 1 << 28
)

// checkSizes refuses sizes that make no matrix, or one that takes too much memory.
func checkSizes(cmd *cobra.Command) error {
	sizes := map[string]int{}
	for _, name := range []string{"m", "n", "k"} {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		v, err := strconv.Atoi(f.Value.String())
		if f.Changed && (err != nil || v < 1 || v > mostSize) {
			return misuse("--%s %s: give a size from 1 to %d", name, f.Value, mostSize)
		}
		sizes[name] = v
	}
	for _, matrix := range [][2]string{{"m", "k"}, {"n", "k"}, {"m", "n"}} {
		if rows, cols := sizes[matrix[0]], sizes[matrix[1]]; rows*cols > mostElements {
			return misuse("--%s %d and --%s %d make a matrix of %d elements: at most %d are measured", matrix[0], rows, matrix[1], cols, rows*cols, mostElements)
		}
	}
	return nil
}

// run measures and prints.
func (b *benchRun) run(cmd *cobra.Command, show func(io.Writer, []bench.Result) error, measure func() ([]bench.Result, error)) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.Close()
	results, err := measure()
	if err != nil {
		return err
	}
	b.warn(cmd, results)
	out := cmd.OutOrStdout()
	if *b.asJSON {
		return printJSON(out, benchDocuments(results))
	}
	if err := b.printMachine(out); err != nil {
		return err
	}
	return show(out, results)
}

// printResult prints the first of the results, an operation, beside its limit.
func printResult(w io.Writer, results []bench.Result) error {
	r := results[0]
	var s strings.Builder
	writeSteps(&s, terminalWidth(w), []step{
		{"work", fmt.Sprintf("%s %s, %s, kernel %s", r.Op, workText(r), countText(r.Threads, "thread"), r.Kernel)},
		{"time", timeText(r)},
		{"rate", threeDigits(r.Rate()) + " " + string(r.Unit)},
		{"limit", fmt.Sprintf("%s %s (%s)", threeDigits(r.Limit), r.Unit, r.LimitBy)},
		{"fraction", fmt.Sprintf("%.2f", r.Fraction())},
	})
	_, err := io.WriteString(w, s.String())
	return err
}

// timeText says what an operation took, and how far its runs differ.
func timeText(r bench.Result) string {
	runs, each, parts := countText(r.Time.Runs, "run"), "", 1.
	if r.Time.Parts > 0 {
		runs, each, parts = fmt.Sprintf("%s of 1/%d of it", runs, r.Time.Parts), " each", float64(r.Time.Parts)
	}
	if r.Time.Runs == 1 {
		return fmt.Sprintf("%s (%s, spread unknown)", secondsText(r.Time.Median), runs)
	}
	return fmt.Sprintf("%s (±%s, %s, %s to %s%s)", secondsText(r.Time.Median), spreadText(r), runs, secondsText(r.Time.Min/parts), secondsText(r.Time.Max/parts), each)
}

// printUnfused prints quantizing in several passes, the passes, and quantizing at
// once.
func printUnfused(w io.Writer, results []bench.Result) error {
	t := newTable(column{"work", false}, column{"time", true}, column{"±", true}, column{"rate", true}, column{"of the limit", true})
	row := func(name string, r bench.Result) {
		t.AppendRow(table.Row{name, secondsText(r.Time.Median), spreadText(r), threeDigits(r.Rate()) + " " + string(r.Unit), fmt.Sprintf("%.2f", r.Fraction())})
	}
	separate, passes, fused := results[0], results[1:4], results[4]
	for _, r := range passes {
		row(r.Op, r)
	}
	row("all three", separate)
	row("at once", fused)
	_, err := fmt.Fprintf(w, "%s, %s\n\n%s\n\nAt once it is %s times as fast.\nThe limit is %s %s (%s).\n", workText(fused), countText(fused.Threads, "thread"), t.Render(),
		threeDigits(fused.Rate()/separate.Rate()), threeDigits(fused.Limit), fused.Unit, fused.LimitBy)
	return err
}

// workText says what an operation was done with.
func workText(r bench.Result) string {
	switch {
	case r.N == 0 && r.Op == "dequantize":
		return fmt.Sprintf("%d×%d %s → %s", r.M, r.K, r.Format, r.Source)
	case r.N == 0:
		return fmt.Sprintf("%d×%d %s → %s", r.M, r.K, r.Source, r.Format)
	}
	return fmt.Sprintf("%d×%d×%d %s·%s", r.M, r.N, r.K, r.Source, r.Format)
}
