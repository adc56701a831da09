package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/blocksize"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

func studyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "study STUDY",
		Short:   "Measure the error of formats on generated values",
		Long:    "Measure the error of formats on values of known distributions.",
		Example: "  microscale study block-size --rows 4 --blocks 16,32",
	}
	flags.Parent(cmd)
	cmd.AddCommand(blockSizeCommand())
	return cmd
}

const blockSizeLong = `Measure formats by block size, scale rule and distribution: SQNR, mean SQNR of
blocks of 32, largest absolute error, saturated and flushed elements. Then
compare a direct cast with scaled casts, and add one outlier of 5000.

Values are drawn by seed, so the same command prints the same figures. Formats
with FP32 scales keep their own blocks.`

const blockSizeExample = `  microscale study block-size --rows 4
  microscale study block-size --rows 4 --format mxfp4,nvfp4 --distribution t5
  microscale study block-size --rows 4 --blocks 8,16,32 --scale-rule floor,even`

func blockSizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "block-size",
		Short:             "Measure formats by block size, scale rule and distribution",
		Long:              blockSizeLong,
		Example:           blockSizeExample,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	formats := flags.AddList(cmd, "format", "block formats `NAMES`", "mxfp8,mxfp6-e2m3,mxfp4,nvfp4", flags.Names(quant.Formats()),
		quant.Lookup)
	rules := flags.AddList(cmd, "scale-rule", "rules `NAMES` of e8m0 scales", "rceil,floor", flags.Names(quant.ScaleRules()),
		flags.ParseText[quant.ScaleRule])
	on := flags.AddList(cmd, "distribution", "distributions `NAMES` of the values", "gauss", flags.Names(blocksize.Distributions()),
		blocksize.Lookup)
	blocks := cmd.Flags().IntSlice("blocks", []int{8, 16, 32, 64, 128}, "block `SIZES`, separated by commas")
	rows := cmd.Flags().Int("rows", 64, "rows `N` of 4096 values")
	seeds := cmd.Flags().Int("seeds", 1, "seeds `N` to average over")
	svg := addSVG(cmd, "draw the SQNR of the first distribution by block size to `FILE`")
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := blocksize.Config{Formats: formats.Values(), Blocks: *blocks, Rules: rules.Values(), Distributions: on.Values(), Rows: *rows,
			Seeds: *seeds}
		sized := func(f quant.Format) bool { return f.ByteScales() && f.Block.Rows == 1 }
		powers := func(f quant.Format) bool { return f.Scale == format.E8M0 }
		switch {
		case cmd.Flags().Changed("blocks") && !slices.ContainsFunc(c.Formats, sized):
			return show.Misuse("--blocks: the formats keep their own blocks: omit it, or add a format such as mxfp8")
		case cmd.Flags().Changed("scale-rule") && !slices.ContainsFunc(c.Formats, powers):
			return show.Misuse("--scale-rule: the formats have no e8m0 scales: omit it, or add a format such as mxfp8")
		}
		s, err := blocksize.New(c)
		if err != nil {
			return show.Misuse("%s", err)
		}
		if err := svg.write(s.Chart); err != nil {
			return err
		}
		return s.Print(cmd.OutOrStdout(), *asJSON)
	}
	return cmd
}
