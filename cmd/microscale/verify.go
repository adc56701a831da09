package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

func verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify SRC DST",
		Short: "compare DST with the checkpoint that it was quantized from",
		Long: `Reads both checkpoints, checks the structure of DST (every quantized weight has
its scales, every other two-dimensional weight is on the ignore list, files,
index and configuration agree) and compares every weight:

  quantized           each scale, and each decoded element, is within the bound of
                      the format: what any rule, search and rounding can do
  of another dtype    each element is that of SRC, rounded to nearest even
  all others          each bit is that of SRC

The exit status is 1 where any of this does not hold, where values are NaN or Inf
that were finite in SRC, and where one of the --client programs would reject or
misread DST. The bound finds a damaged block. It does not find an element that
moved to the other of its two neighbors, nor low precision: for that,
--min-sqnr sets the lowest SQNR that a quantized weight may have. What a method that
moves errors between elements makes, such as GPTQ, is not within the bound.

` + sourceHelp,
		Example: `  microscale verify sample: out
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --client vllm
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --min-sqnr 18
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --nearest --profile modelopt
  microscale verify Llama-3.2-1B Llama-3.2-1B-NVFP4 --json`,
		Args: sourceAndDestination,
	}
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	nearest := cmd.Flags().Bool("nearest", false, "show what DST gains over quantizing SRC by the rules of --profile, without a search of scales")
	behavior := addProfile(cmd)
	clients := addClients(cmd)
	minSQNR := cmd.Flags().Float64("min-sqnr", 0, "fail where the SQNR of a quantized weight is below `DB` decibels (default: no limit)")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	threads := addThreads(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if behavior.given && !*nearest {
			return misuse("--profile is whose rules --nearest compares DST with: give both, or neither")
		}
		if cmd.Flags().Changed("min-sqnr") && !(*minSQNR > 0 && *minSQNR <= math.MaxFloat64) {
			return misuse("--min-sqnr is a positive number of decibels, not %g", *minSQNR)
		}
		options := verify.Options{Threads: int(*threads), Clients: *clients, MinSQNR: *minSQNR}
		if *nearest {
			options.Nearest = func(f quant.Format) (quant.Quantizer, error) {
				if !behavior.given {
					return profile.For(f).Quantizer(f)
				}
				return behavior.value.Quantizer(f)
			}
		}
		src, source, err := openModel(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		out := cmd.OutOrStdout()
		dst, destination, err := openModel(cmd.Context(), args[1])
		if err != nil {
			if *asJSON && cmd.Context().Err() == nil {
				unreadable := verifyDocument{Problems: []problemDocument{{Text: oneLine(err)}}, NotCompared: []string{}, Tensors: []verifiedDocument{}, Blocks: []worstDocument{}}
				err = errors.Join(err, printJSON(out, unreadable))
			}
			return err
		}
		defer destination.Close()

		var total int64
		for _, w := range src.Weights {
			total += w.StoredBytes()
		}
		m := newMeter(cmd.ErrOrStderr(), "verifying", total)
		start := time.Now()
		options.Progress = m.Add
		report, err := verify.Compare(cmd.Context(), src, dst, options)
		m.Close()
		if err != nil {
			return interrupted(err, "the comparison is not complete")
		}

		if *asJSON {
			err = printJSON(out, newVerifyDocument(report))
		} else {
			err = printVerification(cmd, report, args, *each, time.Since(start).Seconds())
		}
		if err == nil && !report.OK() {
			err = fmt.Errorf("%s does not agree with %s: %s, the first: %s", args[1], args[0], counted(len(report.Problems), "problem"), report.Problems[0])
		}
		return err
	}
	return cmd
}

type verifyDocument struct {
	OK          bool               `json:"ok"`
	Problems    []problemDocument  `json:"problems"`
	Compared    checkedDocument    `json:"compared"`
	NotCompared []string           `json:"not_compared"`
	Tensors     []verifiedDocument `json:"tensors"`
	Blocks      []worstDocument    `json:"blocks"`
}

// A checkedDocument counts the weights that were compared in each way.
type checkedDocument struct {
	Bounded   int `json:"bounded"`   // quantized: decoded, within the bound of the format
	Rounded   int `json:"rounded"`   // of another dtype
	Identical int `json:"identical"` // to the bit
}

// A verifiedDocument is a weight, its error, and how it was compared.
type verifiedDocument struct {
	tensorDocument
	Check string `json:"check"`
}

func newVerifyDocument(r *verify.Report) verifyDocument {
	doc := verifyDocument{OK: r.OK(), Problems: problemDocuments(r.Problems), NotCompared: orEmpty(r.NotCompared), Blocks: worstDocuments(r.Blocks), Tensors: []verifiedDocument{},
		Compared: checkedDocument{r.Checked(verify.Bounded), r.Checked(verify.Rounded), r.Checked(verify.Identical)}}
	for i, t := range tensorDocuments(r.Tensors) {
		doc.Tensors = append(doc.Tensors, verifiedDocument{t, r.Checks[i].String()})
	}
	return doc
}

type worstDocument struct {
	Tensor     string `json:"tensor"`
	Count      int64  `json:"blocks"`
	ZeroScales int64  `json:"zero_scales"`
	Lost       int64  `json:"lost"`       // blocks of values that became zeros
	Beyond     int64  `json:"beyond"`     // elements beyond the bound of the format
	BadScales  int64  `json:"bad_scales"` // scales beyond it
	Unchecked  int64  `json:"unchecked"`  // elements of blocks without a bound
	Worst      number `json:"worst"`      // dB; null: exact, or all zeros
	Row        int    `json:"row"`
	Col        int    `json:"column"`
	Width      int    `json:"width"`
}

func worstDocuments(blocks []verify.Blocks) []worstDocument {
	documents := make([]worstDocument, len(blocks))
	for i, b := range blocks {
		documents[i] = worstDocument{b.Tensor, b.Count, b.ZeroScales, b.Lost, b.Beyond, b.BadScales, b.Unchecked, number(b.Worst), b.Row, b.Col, b.Width}
	}
	return documents
}

// worstBlocks is how many of the worst blocks are named.
const worstBlocks = 3

// printBlocks prints the worst blocks, one of a weight, and what became of scales
// that are zero.
func printBlocks(w io.Writer, blocks []verify.Blocks) error {
	byLoss := slices.DeleteFunc(slices.Clone(blocks), func(b verify.Blocks) bool { return math.IsNaN(b.Worst) || math.IsInf(b.Worst, 1) })
	slices.SortStableFunc(byLoss, func(a, b verify.Blocks) int { return cmp.Compare(a.Worst, b.Worst) })
	for _, b := range byLoss[:min(worstBlocks, len(byLoss))] {
		if _, err := fmt.Fprintf(w, "worst block: %s dB, row %d, columns %d to %d of %s\n", decibels(b.Worst), b.Row, b.Col, b.Col+b.Width-1, printable(b.Tensor)); err != nil {
			return err
		}
	}
	var zero, lost, count int64
	weights := 0
	for _, b := range blocks {
		zero, lost, count = zero+b.ZeroScales, lost+b.Lost, count+b.Count
		if b.ZeroScales > 0 || b.Lost > 0 {
			weights++
		}
	}
	if weights == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "zero scales: %d in %s; %d of %d blocks hold values that all became zeros\n", zero, counted(weights, "weight"), lost, count)
	return err
}

// addClients gives cmd --client, programs separated by commas.
func addClients(cmd *cobra.Command) *[]verify.Client {
	c := &choices[verify.Client]{parse: verify.LookupClient}
	names := stringers(verify.Clients())
	cmd.Flags().Var(c, "client", "what these programs would reject or misread is a problem too: `NAMES`, of "+strings.Join(names, ", "))
	if err := cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered twice
	}
	return &c.values
}

// checks are what is said of the weights that were compared in each way: where there
// are problems, and where all weights agree.
var checks = []struct {
	check            verify.Check
	compared, agrees string
}{
	{verify.Bounded, "quantized: decoded and compared with the bound of the format", "quantized: every scale and decoded element within the bound of the format"},
	{verify.Rounded, "in another dtype: compared with the rounded source", "in another dtype: every element is the source's, rounded"},
	{verify.Identical, "not quantized: compared bit by bit", "not quantized: identical to the bit"},
}

func printVerification(cmd *cobra.Command, report *verify.Report, args []string, each bool, seconds float64) error {
	out := cmd.OutOrStdout()
	if err := printErrors(out, report.Tensors, each); err != nil {
		return err
	}
	if err := printBlocks(out, report.Blocks); err != nil {
		return err
	}
	verdict := fmt.Sprintf("%s agrees with %s", printable(args[1]), printable(args[0]))
	if !report.OK() {
		fmt.Fprintln(out)
		if err := printProblems(out, report.Problems); err != nil {
			return err
		}
		verdict = "compared"
	}
	if _, err := fmt.Fprintf(out, "\n%s, in %s:\n", verdict, durationText(seconds)); err != nil {
		return err
	}
	for _, c := range checks {
		text := c.compared
		if report.OK() {
			text = c.agrees
		}
		if n := report.Checked(c.check); n > 0 {
			if _, err := fmt.Fprintf(out, "  %s %s\n", counted(n, "weight"), text); err != nil {
				return err
			}
		}
	}
	for _, part := range report.NotCompared {
		if _, err := fmt.Fprintf(out, "  not compared: %s\n", part); err != nil {
			return err
		}
	}
	return printSourceNonFinite(out, report.Tensors, args[0])
}
