package flags

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/naming"
)

// Parent makes cmd, the parent of other commands, print its help. An unknown command is an error.
func Parent(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs // RunE names the unknown command
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return UnknownCommand(cmd, args[0])
		}
		return cmd.Help()
	}
}

// UnknownCommand returns the error for a command that root does not have.
func UnknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return show.Misuse("%v", naming.Unknown("command", name, names))
}

// unknownFlag returns the error for a flag that cmd does not have.
func unknownFlag(cmd *cobra.Command, name string) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := naming.Nearest(name, names)
	if len(near) == 0 {
		return show.Misuse("unknown flag --%s: %s --help-all lists the flags", name, cmd.CommandPath())
	}
	return show.Misuse("unknown flag --%s: did you mean --%s?", name, strings.Join(near, " or --"))
}
