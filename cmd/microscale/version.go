package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the kernels of this processor",
		Long: "Print the version of the program, the Go release that built it, and the kernel\ntier of this processor. " +
			"--verbose adds the features of this processor that\nkernels use, and each kernel of matrix products with what it lacks here.",
		Example:           "  microscale version\n  microscale version --verbose\n  microscale version --json",
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := addJSON(cmd)
	verbose := cmd.Flags().Bool("verbose", false, "list the kernels of matrix products, and what this processor lacks for them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versionDocument{show.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, cpu.Best().String()}
		if *asJSON {
			return show.PrintJSON(cmd.OutOrStdout(), v)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "microscale %s\n%s %s, kernels %s\n", v.Version, v.Go, v.Platform, v.Kernels)
		if err != nil || !*verbose {
			return err
		}
		return printKernels(cmd.OutOrStdout())
	}
	return cmd
}

// printKernels lists the features of this processor, and the kernels of matrix products in the order in which it
// tries them.
func printKernels(w io.Writer) error {
	has := strings.Fields(cpu.Detected().String())
	if _, err := fmt.Fprintf(w, "features: %s\n\nkernels of matrix products:\n",
		cmp.Or(strings.Join(has, " "), "none that kernels use")); err != nil {
		return err
	}
	for _, k := range gemm.Kernels() {
		lacks := slices.DeleteFunc(strings.Fields(k.Needs), func(f string) bool { return slices.Contains(has, f) })
		state := "runs"
		if len(lacks) > 0 {
			state = "lacks " + strings.Join(lacks, " ")
		}
		if _, err := fmt.Fprintf(w, "  %-36s  %s\n", k.Name, state); err != nil {
			return err
		}
	}
	return nil
}

type versionDocument struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`
}
