package ranks

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// Flags are the flags of commands that train on several ranks.
type Flags struct {
	dp, tp     *uint
	sequence   *bool
	tpOnlyAmax *bool
	gradReduce *flags.Choice[comm.Wire]
	timeout    *time.Duration
	library    *string

	distributed, paramGather, overlap, reuse *bool
	gatherFormat                             *flags.Choice[bool] // BF16
}

// Flags that Misused reads.
const (
	libraryFlag    = "mpi-library"
	timeoutFlag    = "timeout"
	defaultTimeout = 10 * time.Minute
)

// Add adds the flags to cmd.
func Add(cmd *cobra.Command) *Flags {
	set := cmd.Flags()
	f := &Flags{}
	f.dp = set.Uint("dp", 1, "divide the microbatches of each step among `N` ranks; under mpirun or srun, the ranks are its processes "+
		"(default their number)")
	f.tp = set.Uint("tp", 1, "divide every layer among `N` ranks (tensor parallelism); the job has --dp × --tp ranks")
	f.sequence = set.Bool("sequence-parallel", false, "with --tp: divide the tokens, too, where ranks otherwise compute the same; the "+
		"ranks gather quantized activations")
	f.tpOnlyAmax = set.Bool("tp-only-amax-red", false, "under delayed scaling, reduce amaxes only over the ranks that share a layer")
	f.gradReduce = flags.AddChoice(cmd, "grad-reduce", "format `NAME` in which gradients travel between ranks: fp32, bf16, mxfp8, fp8-blocks",
		"fp32", comm.WireNames(), comm.ParseWire)
	f.distributed = set.Bool("distributed-optimizer", false, "each rank optimizes a part of the rows, and has the optimizer's state of "+
		"these only")
	f.paramGather = set.Bool("fp8-param-gather", false, "with --distributed-optimizer: each rank quantizes its rows, and the ranks gather "+
		"codes and scales; implies --fp8-param")
	f.gatherFormat = flags.AddChoice(cmd, "param-gather-format", "with --fp8-param-gather: what the ranks gather, `NAME`: quantized (all "+
		"copies), or bf16, which every rank quantizes", "quantized", gatherFormats, parseGatherFormat)
	f.overlap = set.Bool("overlap-param-gather", false, "with --fp8-param-gather: gather the weights of a layer while those before it compute")
	f.reuse = set.Bool("reuse-grad-buf-for-mxfp8-param-ag", false, "with --fp8-param-gather: use the memory of gradients for the "+
		"transfer, under any recipe")
	f.timeout = set.Duration(timeoutFlag, defaultTimeout, "end the job if a rank does not answer another for `TIME`; 0: no limit")
	f.library = AddLibrary(cmd)
	return f
}

// AddLibrary adds the flag that names the MPI library.
func AddLibrary(cmd *cobra.Command) *string {
	return cmd.Flags().String(libraryFlag, "", "load the MPI library `FILE` (default that of the launcher)")
}

// tensor returns the number of ranks that share a layer.
func (f *Flags) tensor() int { return max(1, int(*f.tp)) }

var gatherFormats = []string{"quantized", "bf16"}

func parseGatherFormat(name string) (bf16 bool, err error) {
	i := slices.Index(gatherFormats, name)
	if i < 0 {
		return false, naming.Unknown("format", name, gatherFormats)
	}
	return i == 1, nil
}

// Resize sets the number of ranks again, after flags were set that a resumed run takes from its checkpoint. That of an
// MPI job is the number of its processes.
func (j *Job) Resize() {
	if j.world == nil {
		j.ranks = max(1, int(*j.flags.dp)) * j.flags.tensor()
		j.local = j.ranks
	}
}

// Prepare sets the flags that others imply: --microbatches is by default the number of ranks that
// divide them.
func (j *Job) Prepare(cmd *cobra.Command) error {
	if *j.flags.paramGather {
		if !*j.flags.distributed {
			return show.Misuse("--fp8-param-gather gathers what the ranks of a distributed optimizer quantize: add --distributed-optimizer")
		}
		if err := cmd.Flags().Set("fp8-param", "true"); err != nil {
			return err
		}
	}
	dp := j.ranks / j.flags.tensor()
	if dp <= 1 || cmd.Flags().Changed("microbatches") {
		return nil
	}
	if batch := flags.Uint(cmd, "batch"); batch%uint64(dp) != 0 {
		return show.Misuse("--dp: %d ranks divide a batch, want a divisor of %d, the number of its sequences (--batch)", dp, batch)
	}
	return cmd.Flags().Set("microbatches", fmt.Sprint(dp))
}

// Configure sets the fields of c that the flags set, and prints which of them have no effect under the recipes.
func (j *Job) Configure(cmd *cobra.Command, c *train.Config, recipes ...recipe.Recipe) error {
	f, p := j.flags, &c.Parallel
	for _, inert := range []struct {
		flag string
		set  bool
		why  string
	}{
		{"tp-only-amax-red", *f.tpOnlyAmax && !slices.ContainsFunc(recipes, func(r recipe.Recipe) bool { return r.Delayed.Enabled() }),
			"only the recipe delayed has amaxes to reduce"},
		{"sequence-parallel", *f.sequence && f.tensor() == 1, "no ranks share a layer (--tp)"},
		{"overlap-param-gather", *f.overlap && *f.distributed && !c.HoldQuantized, "only --fp8-param-gather gathers weights by layers"},
	} {
		if inert.set && j.First() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s has no effect: %s\n", cmd.Root().Name(), flags.Label(cmd, inert.flag), inert.why)
		}
	}
	p.GradReduce, p.DistributedOptimizer = f.gradReduce.Value, *f.distributed
	p.Tensor, p.Sequence, p.TensorAmaxOnly = f.tensor(), *f.sequence, *f.tpOnlyAmax
	if j.world != nil && c.Threads == 0 {
		c.Threads = j.threads() // also outside of Train: other ranks compute at the same time
	}
	p.GatherBF16, p.OverlapParamGather, p.ReuseGradBuffer = f.gatherFormat.Value, *f.overlap, *f.reuse
	if err := c.CheckRanks(j.ranks); err != nil {
		return show.Misuse("%v", flags.WithFlag(err))
	}
	return nil
}
