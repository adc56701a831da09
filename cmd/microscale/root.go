package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/ranges"
)

// A group has commands of a title. Commands that clean up handle interruption; the others end at once,
// even while they read standard input.
type group struct {
	title    string
	cleansUp bool
	commands []func() *cobra.Command
}

// groups lists the commands. A new command is a file and an entry here. It is a function because demo runs
// other commands.
func groups() []group {
	return []group{
		{"Checkpoints", true, []func() *cobra.Command{demoCommand, quantizeCommand, dequantizeCommand, convertCommand, foldCommand,
			mergeCommand, inspectCommand, identifyCommand, diffCommand,
			lintCommand, repairCommand, verifyCommand, pushCommand}},
		{"Models", true, []func() *cobra.Command{trainCommand, compareCommand, evalCommand, calibrateCommand}},
		{"Models", false, []func() *cobra.Command{runCommand}},
		{"Models", true, []func() *cobra.Command{serveCommand}},
		{"Models", false, []func() *cobra.Command{tokenizeCommand}},
		{"Numbers", false, []func() *cobra.Command{formatsCommand, castCommand, explainCommand, mmaCommand, studyCommand}},
		{"Hardware", false, []func() *cobra.Command{checkCommand, layoutCommand, costCommand}},
		{"Speed", false, []func() *cobra.Command{benchCommand}},
		{"Program", false, []func() *cobra.Command{versionCommand, manCommand}},
	}
}

const rootLong = `Convert tensors and checkpoints to block-scaled low-precision formats (MXFP8,
MXFP6, MXFP4, MXINT8, NVFP4, FP8), and measure the error. The results match
those of the libraries that use the formats bit for bit.`

const rootExample = `  microscale quantize sample: out --format mxfp8
  microscale verify sample: out
  microscale cast --to e4m3 0.3952
  microscale explain --format mxfp4 0.1 -0.7 2.5 3.4`

func init() { cobra.EnableCommandSorting = false }

// rootCommand returns the root of the commands. *started becomes true when the code
// of a command runs.
func rootCommand(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:           "microscale COMMAND",
		Long:          rootLong,
		Example:       rootExample,
		Version:       show.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags.Parent(root)
	root.SetVersionTemplate("microscale {{.Version}}\n")
	root.SetFlagErrorFunc(flags.FlagError)
	for _, g := range groups() {
		if !root.ContainsGroup(g.title) {
			root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		}
		for _, newCommand := range g.commands {
			cmd := newCommand()
			cmd.GroupID = g.title
			if g.cleansUp {
				cmd.RunE = flags.Interruptible(cmd.RunE)
			}
			setUp(cmd, started)
			root.AddCommand(cmd)
		}
	}
	flags.SetHelp(root)
	root.DisableFlagsInUseLine = true
	return root
}

// setUp sets what all commands have in common, for cmd and those below it.
func setUp(cmd *cobra.Command, started *bool) {
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*started = true
		given := input.Queries{}
		if err := flags.ReplaceTexts(cmd, args, given.Hide); err != nil {
			return err
		}
		if err := flags.CheckOnDisk(cmd, args); err != nil {
			return err
		}
		cmd.SetContext(given.Context(ranges.Notifying(cmd.Context(), show.Notices(cmd.ErrOrStderr()))))
		return work(cmd, args)
	}
	for _, sub := range cmd.Commands() {
		setUp(sub, started)
	}
}
