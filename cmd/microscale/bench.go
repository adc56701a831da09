package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/cpu"
)

const benchHelp = `A rate is that of the median of several runs, "±" the median distance from it as
a share; what takes seconds is run once, and its "±" is unknown. Where a run is
of a part of the work, the time is that of all parts. The limit of a rate is
what the machine allows, measured in the same run: memory that streams as many
bytes, or the instruction that the kernel consists of, on registers alone.
Threads are kept on processors of their own among those that the process was
given, where the system can do that.`

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench WORK",
		Short: "speed beside the machine's limits",
		Long: `Measures how fast the kernels are, and how fast the machine allows them to be.

` + benchHelp,
		Example: `  microscale bench limits
  microscale bench quantize --format mxfp8
  microscale bench gemm --format nvfp4 --threads 2 --json`,
		Args: cobra.ArbitraryArgs, // so that RunE names the unknown work
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	const group = "Work"
	cmd.AddGroup(&cobra.Group{ID: group, Title: group})
	for _, sub := range []*cobra.Command{benchLimitsCommand(), benchQuantizeCommand(), benchDequantizeCommand(), benchGemmCommand(), benchGemvCommand(), benchCheckpointCommand(), benchLinearCommand(), benchAllCommand()} {
		sub.GroupID = group
		cmd.AddCommand(sub)
	}
	return cmd
}

// A benchRun is one bench command under way: its flags, and the threads that
// measure.
type benchRun struct {
	threads *int
	budget  *time.Duration
	kernel  *choice[cpu.Tier]
	asJSON  *bool

	*bench.Team
	memory bench.Memory
}

// benchDefaults is what differs between the flags of bench commands.
type benchDefaults struct {
	threads int
	all     string // what 0 threads are, if not one for each processor
	budget  time.Duration
	spent   string // on what the budget is spent, if not on all
}

// addBench gives cmd the flags of all bench commands.
func addBench(cmd *cobra.Command, d benchDefaults) *benchRun {
	all := cmp.Or(d.all, "as many as there are processors")
	spent := cmp.Or(d.spent, "in all, the preparation aside")
	tiers := stringers([]cpu.Tier{cpu.AMX, cpu.AVX512, cpu.AVX2, cpu.Plain})
	return &benchRun{
		threads: cmd.Flags().Int("threads", d.threads, "threads `N`, each on a processor of its own; 0: "+all),
		budget:  cmd.Flags().Duration("budget", d.budget, "time `T` to measure "+spent),
		kernel:  addChoice(cmd, "kernel", "use the kernels of the tier `NAME`: "+strings.Join(tiers, ", ")+" (default the first that this processor has)", "", tiers, cpu.ParseTier),
		asJSON:  cmd.Flags().Bool("json", false, "print one JSON document"),
	}
}

// begin checks the flags, chooses the kernels and starts the threads. The
// caller closes the team.
func (b *benchRun) begin() error {
	if b.kernel.given {
		if err := cpu.Force(b.kernel.value); err != nil {
			return misuse("--kernel: %v", err)
		}
	}
	switch {
	case *b.budget <= 0:
		return misuse("--budget %v leaves no time to measure: give a positive one", *b.budget)
	case *b.threads == 0:
		*b.threads = bench.Processors()
	case *b.threads < 0 || *b.threads > bench.Processors():
		return misuse("--threads %d: use 0 to %d: this process was given %s", *b.threads, bench.Processors(), countText(bench.Processors(), "processor"))
	}
	var err error
	b.Team, err = bench.NewTeam(*b.threads)
	return err
}

// warn says on standard error where other work took part in what was measured.
func (b *benchRun) warn(cmd *cobra.Command, results []bench.Result) {
	for _, r := range results {
		if r.Time.Busy {
			warnBusy(cmd.ErrOrStderr(), "runs")
			return
		}
	}
}

// warnBusy says that other work took part in what was measured.
func warnBusy(w io.Writer, what string) {
	fmt.Fprintf(w, "microscale: other programs had the processors during most %s: an idle machine is faster\n", what)
}

// benchDocument is one result as JSON.
type benchDocument struct {
	Op       string `json:"op"`
	Format   string `json:"format"`
	From     string `json:"from,omitempty"`
	M        int    `json:"m"`
	N        int    `json:"n"`
	K        int    `json:"k"`
	Packed   bool   `json:"packed,omitempty"` // B was packed beforehand
	Both     bool   `json:"both,omitempty"`   // a rowwise and a columnwise copy
	Threads  int    `json:"threads"`
	Kernel   string `json:"kernel"`
	Seconds  number `json:"seconds"`
	Spread   number `json:"spread"` // median distance from the median, as a share of it; null where unknown, as of one run
	Runs     int    `json:"runs"`
	Parts    int    `json:"parts,omitempty"` // of the work, one of which each run did; seconds are those of all
	Busy     bool   `json:"busy"`            // other programs had the processors during most of them
	Rate     number `json:"rate"`
	Unit     string `json:"unit"`
	Limit    number `json:"limit"` // null: this is a limit itself
	LimitBy  string `json:"limit_by,omitempty"`
	Fraction number `json:"fraction"`
}

func benchDocuments(results []bench.Result) []benchDocument {
	docs := make([]benchDocument, len(results))
	for i, r := range results {
		docs[i] = benchDocument{
			Op: r.Op, Format: r.Format, From: r.Source, M: r.M, N: r.N, K: r.K, Packed: r.Packed, Both: r.Both, Threads: r.Threads, Kernel: r.Kernel,
			Seconds: number(r.Time.Median), Spread: number(r.Time.Spread()), Runs: r.Time.Runs, Parts: r.Time.Parts, Busy: r.Time.Busy,
			Rate: number(r.Rate()), Unit: string(r.Unit), Limit: number(r.Limit), LimitBy: r.LimitBy, Fraction: number(r.Fraction()),
		}
	}
	return docs
}

// printMachine says what the figures below were measured on.
func (b *benchRun) printMachine(w io.Writer) error {
	m := bench.ThisMachine()
	how := "each on a processor of its own"
	if !b.Pinned() {
		how = "not pinned: this system has no call for it"
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s\n%s kernels, threads %s\n\n", m.CPU, countText(m.Processors, "processor"), m.System+" "+m.Go, m.Tier, how)
	return err
}

func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// threeDigits writes a figure with three digits, or with all before the point.
func threeDigits(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	// Rounded once already, for 99.96 has one digit less behind the point than before.
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil || rounded == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(rounded))))), 64)
}

// secondsText writes a time with three digits.
func secondsText(s float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= unit.seconds {
			return threeDigits(s/unit.seconds) + " " + unit.name
		}
	}
	return threeDigits(s*1e9) + " ns"
}
