package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/cpu"
)

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Print the version and the kernels of this processor",
		Long:              "Print the version of the program, the Go release that built it, and the kernel\ntier of this processor.",
		Example:           "  microscale version\n  microscale version --json",
		Args:              flags.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versionDocument{show.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, cpu.Best().String()}
		if *asJSON {
			return show.PrintJSON(cmd.OutOrStdout(), v)
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "microscale %s\n%s %s, kernels %s\n", v.Version, v.Go, v.Platform, v.Kernels)
		return err
	}
	return cmd
}

type versionDocument struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"`
}
