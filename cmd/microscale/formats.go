package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/catalog"
	"github.com/microscale-go/microscale/internal/cli"
)

func formatsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "formats",
		Short: "list the formats, and which client reads which",
		Long: `Print the block formats and the scalar formats of their elements and scales, with
their limits. With --clients, print as what each format is stored for each client.
Names are matched without regard to case; other projects' names are accepted.`,
		Example: `  microscale formats
  microscale formats --clients
  microscale formats --json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	asMarkdown := cmd.Flags().Bool("markdown", false, "print Markdown tables")
	byClient := cmd.Flags().Bool("clients", false, "print the convention and scheme of each format for each client")
	cli.Exclusive(cmd, "json", "markdown")
	cli.Exclusive(cmd, "json", "clients")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		blocks, scalars := catalog.BlockTable(), catalog.ScalarTable()
		switch {
		case *asJSON:
			return cli.PrintJSON(out, catalog.FormatsDocument())
		case *byClient && *asMarkdown:
			_, err := fmt.Fprintln(out, catalog.ClientTable().RenderMarkdown())
			return err
		case *byClient:
			_, err := fmt.Fprintln(out, catalog.ClientTable().Render())
			return err
		case *asMarkdown:
			_, err := fmt.Fprintf(out, "%s\n\n%s\n", blocks.RenderMarkdown(), scalars.RenderMarkdown())
			return err
		}
		_, err := fmt.Fprintf(out, "Block formats\n\n%s\n\nScalar formats\n\n%s\n\nOther names\n\n", blocks.Render(), scalars.Render())
		if err != nil {
			return err
		}
		return catalog.PrintAliases(out)
	}
	return cmd
}
