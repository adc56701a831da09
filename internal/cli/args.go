package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// AddThreads gives cmd --threads.
func AddThreads(cmd *cobra.Command) *uint {
	return cmd.Flags().Uint("threads", 0, "work on `N` processors (default all); the result is the same for any number")
}

// SourceAndDestination is the check of the arguments SRC and DST.
func SourceAndDestination(_ *cobra.Command, args []string) error {
	return Named(args, "SRC", "DST")
}

// Named checks that a command line has one argument for each of the names, and
// none that is empty.
func Named(args []string, names ...string) error {
	if len(args) != len(names) {
		return Misuse("%s must be given, not %s", strings.Join(names, " and "), Counted(len(args), "argument"))
	}
	for i, a := range args {
		if a == "" {
			return Misuse("%s is empty: name a checkpoint", names[i])
		}
	}
	return nil
}
