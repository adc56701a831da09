package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
)

func repairCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair SRC DST",
		Short: "Repair what lint finds in a quantized checkpoint",
		Long: `Copy a checkpoint, and repair what microscale lint finds in it: global scales of
fused sets, scales of activations, ignore lists in both configuration files,
spelling, the index and, with --source, modules that predict further tokens.
Codes never change. Each change is listed, and with the errors of scales that
are rounded; all other tensors and files are copied byte by byte.

What cannot be repaired from the files is listed as left. --dry-run lists the
changes and writes nothing.

` + input.Help,
		Example: `  microscale repair DeepSeek-V3-NVFP4 repaired --dry-run
  microscale repair Qwen3.5-NVFP4 repaired --for vllm --source Qwen3.5`,
		Args: flags.SourceAndDestination,
	}
	clients := flags.AddList(cmd, "for", "apply the rules of the clients `NAMES` (default all that read the checkpoint)", "",
		flags.Names(client.All()), client.Lookup)
	original := cmd.Flags().String("source", "", "the checkpoint `ORIGINAL` that SRC was quantized from, for modules that SRC lacks")
	f := addRunFlags(cmd)
	f.options.AllowNonFinite = true
	cmd.RunE = flags.Remedied(func(cmd *cobra.Command, args []string) error {
		source, err := openBroken(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer source.Close()
		m, err := checkpoint.ReadContext(cmd.Context(), source)
		if err != nil {
			return err
		}
		var before *checkpoint.Model
		if *original != "" {
			from, err := input.Open(cmd.Context(), *original)
			if err != nil {
				return err
			}
			defer from.Close()
			f.reads = []string{from.Path}
			for _, s := range from.Shards() {
				f.reads = append(f.reads, s.File.Name())
			}
			if before, err = checkpoint.ReadContext(cmd.Context(), from); err != nil {
				return err
			}
		}
		repair, err := lint.PlanRepair(cmd.Context(), m, before, lint.Options{Clients: clients.Values()})
		if err != nil {
			return show.Interrupted(err, "nothing was written")
		}
		printRepair(cmd, repair)
		if len(repair.Changes) == 0 {
			return fmt.Errorf("%s: nothing to repair was found: nothing was written", show.Printable(args[0]))
		}
		plan, err := convert.PlanPatch(cmd.Context(), source, repair.Patch)
		if err != nil {
			return err
		}
		return f.run(cmd, "repairing", conversion.Repaired(args[0], args[1], plan, repair))
	})
	return cmd
}

// printRepair prints the changes of a repair, and what is left, to standard error.
func printRepair(cmd *cobra.Command, repair *lint.Repair) {
	w := cmd.ErrOrStderr()
	for _, c := range repair.Changes {
		fmt.Fprintf(w, "%s %s: %s\n", c.Rule, show.Printable(c.Name), show.Escaped(c.Text))
	}
	for _, f := range repair.Left {
		fmt.Fprintf(w, "left: %s %s\n", f.Rule.ID, show.Escaped(f.String()))
	}
}
