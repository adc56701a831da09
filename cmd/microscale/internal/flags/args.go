package flags

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// AddThreads adds --threads to cmd.
func AddThreads(cmd *cobra.Command) *uint {
	threads := cmd.Flags().Uint("threads", 0, "use `N` threads (default one per processor); results do not depend on N")
	countsFrom(0, cmd, "threads")
	return threads
}

// NoArguments checks that there are no arguments.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return show.Misuse("got %q, want no arguments", args[0])
	}
	return nil
}

// SourceAndDestination checks the arguments SRC and DST.
func SourceAndDestination(_ *cobra.Command, args []string) error {
	return Named(args, "SRC", "DST")
}

// Named checks that there is a non-empty argument for each name.
func Named(args []string, names ...string) error {
	if len(args) != len(names) {
		return show.Misuse("got %[2]s, want %[1]s", strings.Join(names, " and "), show.Counted(len(args), "argument"))
	}
	for i, a := range args {
		if a == "" {
			return show.Misuse("%s is empty: want the name of a checkpoint", names[i])
		}
	}
	return nil
}
