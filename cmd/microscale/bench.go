package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
)

const benchHelp = `Rates are of the median time of several runs. "±" is the median absolute
deviation as a share of the median; it is unknown for a single run. If a run
does a part of the work, the time is scaled to all of it. The limit is what the
machine allows, measured in the same run: a memory stream of as many bytes, or
the instruction that bounds the kernel, on registers only. Each thread is pinned
to a processor where the system supports that.`

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench WORK",
		Short: "Measure speed beside the limits of the machine",
		Long: `Measure the speed of the kernels beside the limits of the machine.

` + benchHelp,
		Example: `  microscale bench limits
  microscale bench all
  microscale bench quantize --format mxfp8
  microscale bench gemm --format nvfp4 --threads 2 --json`,
	}
	flags.Parent(cmd)
	const group = "Work"
	cmd.AddGroup(&cobra.Group{ID: group, Title: group})
	for _, sub := range []*cobra.Command{benchLimitsCommand(), benchQuantizeCommand(), benchDequantizeCommand(), benchGemmCommand(),
		benchGemvCommand(), benchCheckpointCommand(), benchLinearCommand(), benchLLMCommand(), benchAllCommand()} {
		sub.GroupID = group
		cmd.AddCommand(sub)
	}
	return cmd
}

// benchWork returns a bench command without its code.
func benchWork(use, short, long string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long + "\n\n" + benchHelp, Args: flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions}
}
