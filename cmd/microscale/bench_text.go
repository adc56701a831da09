package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// printResult prints the first of the results, an operation, beside its limit.
func printResult(w io.Writer, results []bench.Result) error {
	r := results[0]
	var s strings.Builder
	show.WriteSteps(&s, show.TerminalWidth(w), []show.Step{
		{"work", fmt.Sprintf("%s %s, %s, kernel %s", r.Op, workText(r), show.Counted(r.Threads, "thread"), r.Kernel)},
		{"time", timeText(r)},
		{"rate", show.ThreeDigits(r.Rate()) + " " + string(r.Unit)},
		{"limit", fmt.Sprintf("%s %s (%s)", show.ThreeDigits(r.Limit), r.Unit, r.LimitBy)},
		{"fraction", fmt.Sprintf("%.2f", r.Fraction())},
	})
	_, err := io.WriteString(w, s.String())
	return err
}

// printUnfused prints quantizing in several passes, the passes, and quantizing in one.
func printUnfused(w io.Writer, results []bench.Result) error {
	t := show.NewTable(show.Left("work"), show.Right("time"), show.Right("±"), show.Right("rate"), show.Right("of the limit"))
	row := func(name string, r bench.Result) {
		t.AppendRow(table.Row{name, secondsText(r.Time.Median), spreadText(r), show.ThreeDigits(r.Rate()) + " " + string(r.Unit),
			fmt.Sprintf("%.2f", r.Fraction())})
	}
	separate, passes, fused := results[0], results[1:4], results[4]
	for _, r := range passes {
		row(r.Op, r)
	}
	row("three passes", separate)
	row("one pass", fused)
	_, err := fmt.Fprintf(w, "%s, %s\n\n%s\n\nOne pass is %s times as fast.\nThe limit is %s %s (%s).\n", workText(fused),
		show.Counted(fused.Threads, "thread"), t.Render(),
		show.ThreeDigits(fused.Rate()/separate.Rate()), show.ThreeDigits(fused.Limit), fused.Unit, fused.LimitBy)
	return err
}

// timeText formats the time of an operation and its spread.
func timeText(r bench.Result) string {
	runs, each, parts := show.Counted(r.Time.Runs, "run"), "", 1.
	if r.Time.Parts > 0 {
		runs, each, parts = fmt.Sprintf("%s of 1/%d of it", runs, r.Time.Parts), " each", float64(r.Time.Parts)
	}
	if r.Time.Runs == 1 {
		return fmt.Sprintf("%s (%s, spread unknown)", secondsText(r.Time.Median), runs)
	}
	return fmt.Sprintf("%s (±%s, %s, %s to %s%s)", secondsText(r.Time.Median), spreadText(r), runs, secondsText(r.Time.Min/parts),
		secondsText(r.Time.Max/parts), each)
}

// workText formats the sizes and formats of an operation.
func workText(r bench.Result) string {
	switch {
	case r.N == 0 && r.Op == "dequantize":
		return fmt.Sprintf("%d×%d %s → %s", r.M, r.K, r.Format, r.Source)
	case r.N == 0:
		return fmt.Sprintf("%d×%d %s → %s", r.M, r.K, r.Source, r.Format)
	}
	return fmt.Sprintf("%d×%d×%d %s·%s", r.M, r.N, r.K, r.Source, r.Format)
}

// spreadText formats the spread; "-" if it is unknown.
func spreadText(r bench.Result) string { return show.Percent(r.Time.Spread()) }

// secondsText formats a time with three significant digits.
func secondsText(s float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= unit.seconds {
			return show.ThreeDigits(s/unit.seconds) + " " + unit.name
		}
	}
	return show.ThreeDigits(s*1e9) + " ns"
}
