package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

func foldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fold SRC DST --format NAME --calibration FILE",
		Short: "Scale columns of layers, to quantize with less error",
		Long: `Multiply the columns of linear layers by powers of two, and divide the norms and
layers before them by these, as AWQ does, where the nearest codes of --format
lose less by the statistics. DST computes the same as SRC by other weights,
which verify would reject: eval --reference SRC compares them. Every client that
loads SRC loads DST. It is meant for 4-bit activations: compare both by eval
--activations.

FILE has the statistics of SRC (microscale calibrate SRC --out
FILE.safetensors). Inputs that routers or experts read, and those of latent
attention, stay. With --statistics, those of DST are written too, without
reading the text again: calibrate DST by these, not by those of SRC.

` + input.Help,
		Example: `  microscale calibrate model --text book.txt --hessian --out s.safetensors
  microscale fold model folded --format nvfp4 --calibration s.safetensors \
    --statistics f.safetensors
  microscale quantize folded small --format nvfp4 --scheme NVFP4 \
    --calibration f.safetensors --method gptq`,
		Args: flags.SourceAndDestination,
	}
	format := flags.AddFormat(cmd)
	statistics := cmd.Flags().String("calibration", "", "statistics `FILE` of the inputs of SRC, of calibrate --out FILE.safetensors")
	out := cmd.Flags().String("statistics", "", "also write the statistics of the inputs of DST to the new file `FILE` (.safetensors)")
	f := addRunFlags(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("calibration"))
	cmd.RunE = flags.Remedied(f.staged(func(cmd *cobra.Command, args []string) error {
		if err := checkFolded(cmd, f, args[1], *statistics, *out); err != nil {
			return err
		}
		source, err := input.OpenFor(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		defer source.Close()
		s, err := calibration.Read(*statistics)
		if err != nil {
			return err
		}
		defer s.Close()
		plan, folded, err := convert.PlanFold(cmd.Context(), source, s, quant.Quantizer{Format: format.Value}, int(*f.threads))
		if err != nil {
			return err
		}
		if *out != "" {
			if err := s.CheckFolded(folded); err != nil { // before the work
				return err
			}
		}
		err = f.run(cmd, "folding", conversion.Folded(args[0], args[1], plan, len(folded)))
		if err != nil || *out == "" || *f.dryRun {
			return err
		}
		return s.WriteFolded(cmd.Context(), *out, folded)
	}))
	return cmd
}

// checkFolded returns an error if the statistics of dst, made of those in a file, cannot be written to out. With --force or --resume they
// may replace others.
func checkFolded(cmd *cobra.Command, f *runFlags, dst, statistics, out string) error {
	switch {
	case !cmd.Flags().Changed("statistics"):
		return nil
	case !evaluation.IsStatistics(out):
		return show.Misuse("--statistics %s: let the name end in .safetensors", show.Printable(out))
	case cmd.Flags().Changed("shard"):
		return show.Misuse("--statistics and --shard exclude each other: fold in one run")
	case within(dst, out):
		return show.Misuse("--statistics %s is DST or in it: name a file beside it", show.Printable(out))
	case f.options.Force || f.options.Resume:
		return evaluation.Renewable(out, statistics)
	}
	return evaluation.Creatable(out)
}

// within reports whether a path is that of a directory, or in it.
func within(dir, path string) bool {
	a, err := filepath.Abs(dir)
	b, failed := filepath.Abs(path)
	if err != nil || failed != nil {
		return false
	}
	rel, err := filepath.Rel(a, b)
	return err == nil && filepath.IsLocal(rel)
}
