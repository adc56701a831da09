package flags

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
)

// A ShardFlag is the value of --shard: the index of this worker and their number.
type ShardFlag struct{ index, count int }

// IndexVariables hold the worker index, from 0, under Kubernetes (indexed Jobs), Slurm
// and Open MPI. Only --shard auto/N reads them.
var IndexVariables = []string{"JOB_COMPLETION_INDEX", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}

func (s *ShardFlag) String() string {
	if s.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.index, s.count)
}

// Type returns the placeholder of the value in the help.
func (s *ShardFlag) Type() string { return "I/N" }

// Set parses I/N or auto/N.
func (s *ShardFlag) Set(text string) error {
	index, count, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("got %q, want I/N or auto/N, such as 0/4 for the first of four workers", text)
	}
	from := "worker"
	if index == "auto" {
		if from, index, err = launcherIndex(); err != nil {
			return err
		}
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= n {
		return fmt.Errorf("%s %q of %d workers: want 0 to %d", from, index, n, n-1)
	}
	s.index, s.count = i, n
	return nil
}

// launcherIndex returns the variable that is set, and its value. Several may be set if
// they agree, as when Slurm starts Open MPI.
func launcherIndex() (name, value string, err error) {
	for _, n := range IndexVariables {
		switch v := os.Getenv(n); {
		case v == "":
		case name == "":
			name, value = n, v
		case v != value:
			return "", "", fmt.Errorf("%s is %q, but %s is %q: use --shard I/N", name, value, n, v)
		}
	}
	if name == "" {
		return "", "", fmt.Errorf("none of %s is set: use --shard I/N", strings.Join(IndexVariables, ", "))
	}
	return name, value, nil
}

// AddShard adds --shard to cmd.
func AddShard(cmd *cobra.Command) *ShardFlag {
	s := &ShardFlag{}
	cmd.Flags().Var(s, "shard", "write the part of worker `I/N` (I from 0) beside DST, or into an object store; merge joins the parts; each "+
		"worker writes whole files; auto/N reads I from JOB_COMPLETION_INDEX, SLURM_PROCID or OMPI_COMM_WORLD_RANK")
	return s
}

// Worker returns the index of the worker and the number of workers; 0 without --shard.
func (s *ShardFlag) Worker() (index, count int) { return s.index, s.count }

// Plan returns the part of the worker, or p without --shard. It prints a note if some
// workers have nothing to do.
func (s *ShardFlag) Plan(stderr io.Writer, p *convert.Plan) (*convert.Plan, error) {
	if s.count == 0 {
		return p, nil
	}
	p, err := p.Worker(s.index, s.count)
	if err != nil {
		return nil, err
	}
	if idle := p.Idle(); len(idle) > 0 {
		fmt.Fprintf(stderr, "microscale: note: %s for %s: %s nothing to convert, but merge needs all %d parts\n",
			show.Counted(s.count, "worker"), show.Counted(len(p.Files()), "file"), have(idle), s.count)
	}
	return p, nil
}

// have names workers with their verb: "worker 1 has", "3 workers (1, 2, 5) have".
func have(workers []int) string {
	if len(workers) == 1 {
		return fmt.Sprintf("worker %d has", workers[0])
	}
	const most = 8
	names := make([]string, 0, most+1)
	for i, w := range workers {
		if i == most {
			names = append(names, "…")
			break
		}
		names = append(names, strconv.Itoa(w))
	}
	return fmt.Sprintf("%d workers (%s) have", len(workers), strings.Join(names, ", "))
}
