package conversion

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/verify"
)

// worstBlocks is the number of blocks that printBlocks names.
const worstBlocks = 3

// printBlocks prints the worst blocks, one for each weight, and counts zero scales and
// the blocks that lost all values.
func printBlocks(w io.Writer, blocks []verify.Blocks) error {
	byLoss := slices.DeleteFunc(slices.Clone(blocks), func(b verify.Blocks) bool { return math.IsNaN(b.Worst) || math.IsInf(b.Worst, 1) })
	slices.SortStableFunc(byLoss, func(a, b verify.Blocks) int { return cmp.Compare(a.Worst, b.Worst) })
	for _, b := range byLoss[:min(worstBlocks, len(byLoss))] {
		if _, err := fmt.Fprintf(w, "worst block: %s dB, row %d, columns %d to %d of %s\n", show.Decibels(b.Worst), b.Row, b.Col, b.Col+b.Width-1,
			show.Printable(b.Tensor)); err != nil {
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
	_, err := fmt.Fprintf(w, "zero scales: %d in %s; %d of %d blocks lost all their values to zero\n", zero, show.Counted(weights, "weight"),
		lost, count)
	return err
}

// checks holds the text for weights compared in each way: if there are problems, and
// if there are none.
var checks = []struct {
	check             verify.Check
	compared, matches string
}{
	{
		verify.Bounded,
		"quantized: decoded and compared with the bound of the format",
		"quantized: every scale and decoded element within the bound of the format",
	},
	{
		verify.Equal,
		"quantized, as the source is: every value decodes to that of the source",
		"quantized, as the source is: every value decodes to that of the source",
	},
	{
		verify.Calibrated,
		"calibrated: codes are not the nearest; scales compared with the bound of the format",
		"calibrated: codes are not the nearest; every scale within the bound of the format",
	},
	{
		verify.DecodedOnly,
		"in types without a block format: compared with the bound of their blocks",
		"in types without a block format: every element within the bound of its block",
	},
	{
		verify.Unbounded,
		"without a bound of an element, as norms that were trained: only the SQNR of each weight compared with a minimum",
		"without a bound of an element, as norms that were trained: only the SQNR of each weight is above the minimum",
	},
	{verify.Rounded, "in another dtype: compared with the rounded source", "in another dtype: every element is the source's, rounded"},
	{verify.Identical, "not quantized: compared bit by bit", "not quantized: identical to the bit"},
}

// PrintVerification prints the comparison of dst with its source src.
func PrintVerification(out io.Writer, src, dst string, report *verify.Report, seconds float64, each, asJSON bool) error {
	if asJSON {
		return show.PrintJSON(out, newVerifyDocument(report))
	}
	if err := printErrors(out, report.Tensors, each); err != nil {
		return err
	}
	if err := printBlocks(out, report.Blocks); err != nil {
		return err
	}
	if err := printNotes(out, report.Notes); err != nil {
		return err
	}
	verdict := fmt.Sprintf("%s matches %s", show.Printable(dst), show.Printable(src))
	if report.Checked(verify.Unbounded) > 0 {
		verdict = fmt.Sprintf("%s is like %s as far as it can be compared", show.Printable(dst), show.Printable(src))
	}
	if !report.OK() {
		fmt.Fprintln(out)
		if err := printProblems(out, report.Problems); err != nil {
			return err
		}
		verdict = "compared"
	}
	if _, err := fmt.Fprintf(out, "\n%s, in %s:\n", verdict, show.DurationText(seconds)); err != nil {
		return err
	}
	for _, c := range checks {
		text := c.compared
		if report.OK() {
			text = c.matches
		}
		if n := report.Checked(c.check); n > 0 {
			if _, err := fmt.Fprintf(out, "  %s %s\n", show.Counted(n, "weight"), text); err != nil {
				return err
			}
		}
	}
	for _, part := range report.NotCompared {
		if _, err := fmt.Fprintf(out, "  not compared: %s\n", part); err != nil {
			return err
		}
	}
	return printSourceNonFinite(out, report.Tensors, "", src)
}
