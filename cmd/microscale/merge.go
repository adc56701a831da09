package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
)

func mergeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge DST",
		Short: "join the parts that several workers wrote",
		Long: `Joins the parts of a checkpoint that workers wrote (--shard), and gives it its
name. Nothing is computed: every part must be there, whole, and of the same
source and options. The result has the bytes that one worker would have written.`,
		Example: `  microscale quantize SRC DST --format mxfp8 --shard 0/2     on one machine
  microscale quantize SRC DST --format mxfp8 --shard 1/2     on another, with the same file system
  microscale merge DST`,
		Args: func(_ *cobra.Command, args []string) error { return named(args, "DST") },
	}
	force := cmd.Flags().Bool("force", false, forceUsage)
	each := cmd.Flags().Bool("each", false, "a line for every weight, not one for the same weight of all layers")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		result, err := convert.Merge(args[0], *force)
		if err != nil {
			return err
		}
		for _, w := range result.Warnings {
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: warning: %s\n", escaped(w))
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			return printJSON(out, mergeDocument{args[0], result.Finished, tensorDocuments(result.Tensors)})
		}
		if result.Finished {
			_, err := fmt.Fprintf(out, "%s is whole already: what an earlier merge had left beside it was removed\n", printable(args[0]))
			return err
		}
		if err := printErrors(out, result.Tensors, *each); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "\n%s is whole: %s\n", printable(args[0]), counted(len(result.Tensors), "weight"))
		return err
	}
	return cmd
}

// mergeDocument is what merge did, as JSON.
type mergeDocument struct {
	Destination string           `json:"destination"`
	Finished    bool             `json:"finished,omitempty"` // an earlier merge had done it: the errors are not known
	Tensors     []tensorDocument `json:"tensors"`
}

// A shardFlag is the value of --shard: which of how many workers this is.
type shardFlag struct{ index, count int }

// indexVariables are where launchers say which of the workers a process is, from 0
// on: Kubernetes (an indexed Job), Slurm, Open MPI. They are read for --shard
// auto/N, and beside hub access the environment is read nowhere else.
var indexVariables = []string{"JOB_COMPLETION_INDEX", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}

func (s *shardFlag) String() string {
	if s.count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.index, s.count)
}

func (s *shardFlag) Type() string { return "I/N" }

func (s *shardFlag) Set(text string) error {
	index, count, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("give it as I/N or auto/N, as in 0/4 for the first of four workers")
	}
	from := "--shard"
	if index == "auto" {
		if from, index = launcherIndex(); from == "" {
			return fmt.Errorf("none of %s is set, which say which worker this is: give it as I/N", strings.Join(indexVariables, ", "))
		}
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= n {
		return fmt.Errorf("%s says worker %q, and %d workers count from 0 to %d", from, index, n, n-1)
	}
	s.index, s.count = i, n
	return nil
}

// launcherIndex returns the first variable that is set, and its value.
func launcherIndex() (name, value string) {
	for _, name := range indexVariables {
		if value := os.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// addShard gives cmd --shard.
func addShard(cmd *cobra.Command) *shardFlag {
	s := &shardFlag{}
	cmd.Flags().Var(s, "shard", "write the part of worker `I/N` alone, who count from 0, beside DST, for merge to join; auto/N asks Kubernetes' JOB_COMPLETION_INDEX, SLURM_PROCID or OMPI_COMM_WORLD_RANK for I")
	return s
}

// plan returns the plan of the worker.
func (s *shardFlag) plan(p *convert.Plan) (*convert.Plan, error) {
	if s.count == 0 {
		return p, nil
	}
	return p.Worker(s.index, s.count)
}
