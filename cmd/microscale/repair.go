package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/lint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/gguf"
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
changes and writes nothing. Of a checkpoint without errors and warnings nothing
is written.

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
	cmd.RunE = flags.Remedied(f.staged(func(cmd *cobra.Command, args []string) error {
		if gguf.Named(args[1]) {
			return show.Misuse("%s: repair writes a directory of safetensors files: use a DST that does not end in %s, and convert that",
				show.Printable(args[1]), gguf.Suffix)
		}
		models, release, err := openBeside(cmd.Context(), openBroken, args[0], *original)
		defer release()
		if err != nil {
			return err
		}
		m, before := models[0], models[1]
		if before != nil {
			f.reads = []string{before.Source.Path}
			for _, s := range before.Source.Shards() {
				f.reads = append(f.reads, s.File.Name())
			}
		}
		repair, err := lint.PlanRepair(cmd.Context(), m, before, lint.Options{Clients: clients.Values()})
		if err != nil {
			return show.Interrupted(err, "nothing was written")
		}
		printRepair(cmd, repair)
		switch {
		case len(repair.Changes) == 0 && len(repair.Left) == 0:
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing to repair, and nothing was written\n", show.Printable(args[0]))
			return err
		case len(repair.Changes) == 0:
			return fmt.Errorf("%s: nothing of it can be repaired: nothing was written", show.Printable(args[0]))
		}
		plan, err := convert.PlanPatch(cmd.Context(), m.Source, repair.Patch)
		if err != nil {
			return err
		}
		return f.run(cmd, "repairing", conversion.Repaired(args[0], args[1], plan, repair))
	}))
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
