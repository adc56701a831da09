package main

import (
	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/summary"
)

// addDryRun gives cmd --dry-run.
func addDryRun(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "print what would be done, from the headers alone; with --each or --json, where every tensor will lie")
}

// dryRunPlan prints a plan that is not carried out, where it could be.
func dryRunPlan(cmd *cobra.Command, plan *convert.Plan, args []string, force, each, asJSON bool) error {
	if err := plan.Admit(args[1], force); err != nil {
		return err
	}
	summary.PrintLeft(cmd.ErrOrStderr(), plan.Source())
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), summary.NewPlanDocument(plan, args))
	}
	return summary.PrintPlan(cmd.OutOrStdout(), plan, args, each)
}
