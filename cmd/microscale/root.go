package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
)

// groups is the list of commands. A new command is a file and an entry here.
// Those that write files remove them when they are interrupted; the others end
// at once, even where they wait for standard input.
var groups = []struct {
	title    string
	tidies   bool // what it writes, when it is interrupted
	commands []func() *cobra.Command
}{
	{"Checkpoints", true, []func() *cobra.Command{quantizeCommand, dequantizeCommand, convertCommand, mergeCommand, inspectCommand, verifyCommand}},
	{"Models", true, []func() *cobra.Command{trainCommand, compareCommand, evalCommand, generateCommand}},
	{"Numbers", false, []func() *cobra.Command{formatsCommand, castCommand, explainCommand, mmaCommand, studyCommand}},
	{"Hardware", false, []func() *cobra.Command{checkCommand, layoutCommand, costCommand}},
	{"Speed", false, []func() *cobra.Command{benchCommand}},
	{"Program", false, []func() *cobra.Command{versionCommand, manCommand}},
}

const rootLong = `Microscale turns tensors and checkpoints into block-scaled low-precision numbers
(MXFP8, MXFP6, MXFP4, MXINT8, NVFP4, FP8) by the rules of the libraries that use
them, to the bit, and says what the lower precision cost.`

const rootExample = `  microscale quantize sample: out --format mxfp8
  microscale verify sample: out
  microscale cast --to e4m3 0.3952
  microscale explain --format mxfp4 0.1 -0.7 2.5 3.4`

func init() { cobra.EnableCommandSorting = false }

// rootCommand returns the command line. *started becomes true when a command's
// own code is reached.
func rootCommand(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:           "microscale COMMAND",
		Long:          rootLong,
		Example:       rootExample,
		Version:       cli.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // so that RunE names the unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.UnknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("microscale {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate(helpTemplate)
	root.SetFlagErrorFunc(cli.FlagError)
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, newCommand := range g.commands {
			cmd := newCommand()
			cmd.GroupID = g.title
			if g.tidies {
				cmd.RunE = cli.Interruptible(cmd.RunE)
			}
			ours(cmd, started)
			root.AddCommand(cmd)
		}
	}
	root.DisableFlagsInUseLine = true
	return root
}

// completions gives the command line cobra's command of that name, which writes
// to the output that is set by then, and an example for every shell.
func completions(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.DisableFlagsInUseLine = true
		const group = "Shells"
		cmd.AddGroup(&cobra.Group{ID: group, Title: group})
		for _, shell := range cmd.Commands() {
			shell.GroupID = group
		}
		cmd.Use, cmd.Long, cmd.Example = "completion SHELL", completionLong, completionExample
	}
}

const completionLong = `Prints a script that lets the shell complete the names of commands, flags,
formats and profiles.`

const completionExample = `  source <(microscale completion bash)
  source <(microscale completion zsh)
  microscale completion fish | source
  microscale completion powershell | Out-String | Invoke-Expression`

// ours sets up a command, and those below it, as all of ours are.
func ours(cmd *cobra.Command, started *bool) {
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		*started = true
		return work(cmd, args)
	}
	for _, sub := range cmd.Commands() {
		ours(sub, started)
	}
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage
  {{.UseLine}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if and (eq .GroupID $group.ID) (not .Hidden)}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasExample}}

Examples
{{.Example}}{{end}}{{if .HasAvailableLocalFlags}}

Flags
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Run 'microscale COMMAND --help' for the flags and examples of a command,
'microscale completion --help' to have them completed by your shell.{{end}}
`
