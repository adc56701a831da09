package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/catalog"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

func formatsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "formats",
		Short: "List the formats and the clients that read them",
		Long: `Print the block formats and the scalar formats of their elements and scales,
with their limits. With --clients, print the convention and scheme of each
format for each client. Names are not case-sensitive. Names of other projects
are accepted.`,
		Example: `  microscale formats
  microscale formats --clients
  microscale formats --json`,
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := addJSON(cmd)
	asMarkdown := cmd.Flags().Bool("markdown", false, "print Markdown tables")
	byClient := cmd.Flags().Bool("clients", false, "print the convention and scheme of each format for each client")
	flags.Exclusive(cmd, "json", "markdown")
	flags.Exclusive(cmd, "json", "clients")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		switch {
		case *asJSON:
			return show.PrintJSON(out, catalog.FormatsDocument())
		case *byClient:
			return catalog.PrintClients(out, *asMarkdown)
		}
		return catalog.PrintFormats(out, *asMarkdown)
	}
	return cmd
}
