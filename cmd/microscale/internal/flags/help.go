package flags

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const (
	helpAll   = "help-all"
	essential = "essential" // annotation of a flag
)

// Essential marks the flags of cmd that --help shows. --help-all shows all of them,
// as do man pages and completion. Without a mark, --help shows all flags too.
func Essential(cmd *cobra.Command, names ...string) {
	for _, n := range names {
		if err := cmd.Flags().SetAnnotation(n, essential, nil); err != nil {
			panic(err) // no such flag
		}
	}
}

func isEssential(f *pflag.Flag) bool {
	_, ok := f.Annotations[essential]
	return ok
}

// A helpAllFlag is the value of --help-all: it shows the help, as --help does.
type helpAllFlag bool

func (f *helpAllFlag) String() string { return fmt.Sprint(*f) }

// Type returns the type of the value, for pflag.
func (f *helpAllFlag) Type() string { return "bool" }

// Set requests the help with all flags.
func (f *helpAllFlag) Set(string) error {
	*f = true
	return pflag.ErrHelp
}

// SetHelp sets the help of root and of the commands below it.
func SetHelp(root *cobra.Command) {
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate(helpTemplate)
	root.InitDefaultVersionFlag()
	if version := root.Flags().Lookup("version"); version != nil {
		version.Usage = "print the version"
	}
	setHelpCommand(root)
	AddHelpAll(root)
}

// setHelpCommand makes the command help fail if it does not know its argument.
func setHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run = nil
		help.RunE = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return show.Misuse("%v", err)
			case len(rest) > 0 && cmd.HasSubCommands():
				return UnknownCommand(cmd, rest[0])
			case len(rest) > 0:
				return show.Misuse("%s has no command %q: run %[1]s --help", cmd.CommandPath(), rest[0])
			}
			return cmd.Help()
		}
	}
}

// CatchHelpError stores the error of help in *problem: that of writing to w, or of an unknown command.
// Cobra prints the former and shows the help of the command above for the latter, and the command succeeds.
func CatchHelpError(root *cobra.Command, w io.Writer, problem *error) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		names := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
		if known := strings.Count(cmd.CommandPath(), " "); cmd.HasAvailableSubCommands() && len(names) > known {
			*problem = UnknownCommand(cmd, names[known])
			return
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		show(cmd, args)
		cmd.SetOut(w)
		_, *problem = w.Write(text.Bytes())
	})
}

// AddHelpAll adds --help-all to cmd and the commands below it.
func AddHelpAll(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().Lookup("help").Usage = "print this help"
	flag := cmd.Flags().VarPF(new(helpAllFlag), helpAll, "", "print the help with all flags")
	flag.NoOptDefVal = "true"
	if brief(cmd) {
		Essential(cmd, "help", helpAll)
	} else {
		flag.Hidden = true
	}
	for _, sub := range cmd.Commands() {
		AddHelpAll(sub)
	}
}

// brief reports whether --help shows the essential flags of cmd only.
func brief(cmd *cobra.Command) (found bool) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { found = found || isEssential(f) })
	return found
}

// shownFlags returns the flags that the help of cmd shows now.
func shownFlags(cmd *cobra.Command) *pflag.FlagSet {
	flags := cmd.LocalFlags()
	if all := flags.Lookup(helpAll); !brief(cmd) || all == nil || all.Value.String() == "true" {
		return flags
	}
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		if isEssential(f) {
			shown.AddFlag(f)
		}
	})
	return shown
}

// flagUsages returns the flags section of the help, in lines of 80 columns.
func flagUsages(cmd *cobra.Command) string {
	shown := shownFlags(cmd)
	text := shown.FlagUsagesWrapped(80)
	if hidden := countFlags(cmd.LocalFlags()) - countFlags(shown); hidden > 0 {
		text += fmt.Sprintf("\nRun '%s --help-all' for %s.", cmd.CommandPath(), show.Counted(hidden, "more flag"))
	}
	return text
}

func countFlags(flags *pflag.FlagSet) (n int) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	return n
}

func init() {
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	cobra.AddTemplateFunc("hasGroup", func(commands []*cobra.Command, id string) bool {
		return slices.ContainsFunc(commands, func(c *cobra.Command) bool { return c.GroupID == id && !c.Hidden })
	})
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage
  {{.UseLine}}{{$cmds := .Commands}}{{range $group := .Groups}}{{if hasGroup $cmds $group.ID}}

{{.Title}}{{range $cmds}}{{if and (eq .GroupID $group.ID) (not .Hidden)}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasExample}}

Examples
{{.Example}}{{end}}{{if .HasAvailableLocalFlags}}

Flags
{{flagUsages . | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Run 'microscale COMMAND --help' for the flags and examples of a command,
'microscale completion --help' to complete them in your shell.{{end}}
`
