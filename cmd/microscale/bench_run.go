package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/bench"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/cpu"
)

// A benchRun is a bench command: its flags and the threads that measure.
type benchRun struct {
	threads *int
	budget  *time.Duration
	kernel  *flags.Choice[cpu.Tier]
	asJSON  *bool

	*bench.Team
	memory bench.Memory
}

// benchDefaults holds what differs between the flags of bench commands.
type benchDefaults struct {
	threads int
	all     string // meaning of 0 threads, if not one for each processor
	budget  time.Duration
	spent   string // scope of the budget, if not the whole command
}

// addBench gives cmd the flags of all bench commands.
func addBench(cmd *cobra.Command, d benchDefaults) *benchRun {
	all, spent := cmp.Or(d.all, "one for each processor"), cmp.Or(d.spent, "in total, without the preparation")
	known := cpu.AllTiers()
	slices.Reverse(known)
	tiers := flags.Names(known)
	return &benchRun{
		threads: cmd.Flags().Int("threads", d.threads, "number of threads `N`, each pinned to a processor; 0: "+all),
		budget:  cmd.Flags().Duration("budget", d.budget, "time `T` to measure "+spent),
		kernel: flags.AddChoice(cmd, "kernel", "use the kernels of tier `NAME`: "+strings.Join(tiers, ", ")+" (default the first that this "+
			"processor has)", "", tiers, cpu.ParseTier),
		asJSON: addJSON(cmd),
	}
}

// begin validates the flags, chooses the kernels and starts the threads. The caller closes
// the team.
func (b *benchRun) begin() error {
	if b.kernel.Given {
		if err := cpu.Force(b.kernel.Value); err != nil {
			return show.Misuse("--kernel: %v", err)
		}
	}
	switch n := bench.Processors(); {
	case *b.budget <= 0:
		return show.Misuse("--budget %v: give a positive time", *b.budget)
	case *b.threads == 0:
		*b.threads = n
	case *b.threads < 0 || *b.threads > n:
		return show.Misuse("--threads %d: give 0 to %d: this process has %s", *b.threads, n, show.Counted(n, "processor"))
	}
	var err error
	b.Team, err = bench.NewTeam(*b.threads)
	return err
}

// run measures and prints.
func (b *benchRun) run(cmd *cobra.Command, write func(io.Writer, []bench.Result) error, measure func() ([]bench.Result, error)) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.Close()
	results, err := measure()
	if err != nil {
		return err
	}
	return b.print(cmd, results, benchDocuments(results), func(w io.Writer) error { return write(w, results) })
}

// print prints the document, or the machine and a text. It warns if other programs disturbed
// the results.
func (b *benchRun) print(cmd *cobra.Command, results []bench.Result, document any, write func(io.Writer) error) error {
	for _, r := range results {
		if r.Time.Busy {
			flags.WarnBusy(cmd.ErrOrStderr(), "runs")
			break
		}
	}
	out := cmd.OutOrStdout()
	if *b.asJSON {
		return show.PrintJSON(out, document)
	}
	m := host.ThisMachine()
	how := "each pinned to a processor"
	if !b.Pinned() {
		how = "not pinned: unsupported on this system"
	}
	processors := show.Counted(m.Processors, "processor")
	if host.SharedCores() {
		processors += " that share cores"
	}
	if _, err := fmt.Fprintf(out, "%s, %s, %s %s\n%s kernels, threads %s\n\n", m.CPU, processors, m.System, m.Go,
		m.Tier, how); err != nil {
		return err
	}
	return write(out)
}
