package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
)

// A ShardFlag is the value of --shard: which of how many workers this is.
type ShardFlag struct{ index, count int }

// IndexVariables are where launchers say which of the workers a process is, from 0
// on: Kubernetes (an indexed Job), Slurm, Open MPI. They are read for --shard
// auto/N, and beside hub access the environment is read nowhere else.
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
		return fmt.Errorf("give it as I/N or auto/N, as in 0/4 for the first of four workers")
	}
	from := "--shard"
	if index == "auto" {
		if from, index, err = launcherIndex(); err != nil {
			return err
		}
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= n {
		return fmt.Errorf("%s says worker %q, and %d workers count from 0 to %d", from, index, n, n-1)
	}
	s.index, s.count = i, n
	return nil
}

// launcherIndex returns the variable that is set, and its value. Several are no
// fault where they agree, as where Slurm starts Open MPI.
func launcherIndex() (name, value string, err error) {
	for _, n := range IndexVariables {
		switch v := os.Getenv(n); {
		case v == "":
		case name == "":
			name, value = n, v
		case v != value:
			return "", "", fmt.Errorf("%s says worker %q, and %s worker %q: give it as I/N", name, value, n, v)
		}
	}
	if name == "" {
		return "", "", fmt.Errorf("none of %s is set, which say which worker this is: give it as I/N", strings.Join(IndexVariables, ", "))
	}
	return name, value, nil
}

// AddShard gives cmd --shard.
func AddShard(cmd *cobra.Command) *ShardFlag {
	s := &ShardFlag{}
	cmd.Flags().Var(s, "shard", "write the part of worker `I/N` alone, who count from 0, beside DST, for merge to join; a worker writes whole files, so that more workers than files have nothing to do; auto/N asks Kubernetes' JOB_COMPLETION_INDEX, SLURM_PROCID or OMPI_COMM_WORLD_RANK for I")
	return s
}

// Plan returns the plan of the worker, and says on standard error where workers
// have nothing to do.
func (s *ShardFlag) Plan(stderr io.Writer, p *convert.Plan) (*convert.Plan, error) {
	if s.count == 0 {
		return p, nil
	}
	p, err := p.Worker(s.index, s.count)
	if err != nil {
		return nil, err
	}
	if idle := p.Idle(); len(idle) > 0 {
		fmt.Fprintf(stderr, "microscale: note: a worker writes whole files, and there %s: %s nothing to convert, though merge wants all %d parts\n",
			are(len(p.Files()), "file"), have(idle), s.count)
	}
	return p, nil
}

// are counts things with a verb: "is 1 file", "are 2 files".
func are(n int, thing string) string {
	if n == 1 {
		return "is 1 " + thing
	}
	return "are " + Counted(n, thing)
}

// have names workers with a verb: "worker 1 has", "3 of the workers (1, 2, 5) have".
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
	return fmt.Sprintf("%d of the workers (%s) have", len(workers), strings.Join(names, ", "))
}
