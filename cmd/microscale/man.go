package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// manCommand writes man pages. It is for packagers, and the help does not list it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Hidden:  true,
		Short:   "Write man pages of all commands",
		Long:    "Write a man page for each command to DIR, which is created if needed.",
		Example: "  microscale man /usr/local/share/man/man1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return show.Misuse("got %s, want DIR", show.Counted(len(args), "argument"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return flags.WriteManPages(cmd.Root(), args[0])
		},
	}
}
