package ranks

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/train"
)

// Flags are the flags of commands that train on several ranks.
type Flags struct {
	dp         *uint
	gradReduce *cli.Choice[comm.Wire]
	timeout    *time.Duration
	library    *string
}

// Add adds the flags to cmd.
func Add(cmd *cobra.Command) *Flags {
	flags := cmd.Flags()
	f := &Flags{}
	f.dp = flags.Uint("dp", 1, "divide the microbatches of each step among `N` ranks; under mpirun or srun, the ranks are its processes (default their number)")
	f.gradReduce = cli.AddChoice(cmd, "grad-reduce", "format `NAME` in which gradients travel between ranks: fp32, bf16, mxfp8, fp8-blocks", "fp32", train.GradReduceNames(), train.ParseGradReduce)
	f.timeout = flags.Duration("timeout", 10*time.Minute, "end the job if a rank does not answer another for `TIME`; 0: no limit")
	f.library = flags.String("mpi-library", "", "load the MPI library `FILE` (default that of the launcher)")
	return f
}

// SetMicrobatches sets --microbatches to the number of ranks if it was not given.
func (j *Job) SetMicrobatches(cmd *cobra.Command) error {
	if j.ranks == 1 || cmd.Flags().Changed("microbatches") {
		return nil
	}
	return cmd.Flags().Set("microbatches", fmt.Sprint(j.ranks))
}

// Configure sets the fields of c that the flags set.
func (j *Job) Configure(c *train.Config) error {
	c.Parallel.GradReduce = j.flags.gradReduce.Value
	if err := c.CheckRanks(j.ranks); err != nil {
		return cli.Misuse("%v", cli.WithFlag(err))
	}
	return nil
}
