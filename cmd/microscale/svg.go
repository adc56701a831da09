package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// An svgFlag is the flag --svg of a command that draws a chart.
type svgFlag struct {
	cmd  *cobra.Command
	path *string
}

func addSVG(cmd *cobra.Command, usage string) svgFlag {
	return svgFlag{cmd, cmd.Flags().String("svg", "", usage)}
}

// check returns an error if the flag is given without a file.
func (f svgFlag) check() error {
	if f.cmd.Flags().Changed("svg") && *f.path == "" {
		return show.Misuse("--svg is empty: name a file")
	}
	return nil
}

// write writes the chart to the file, if the flag is given.
func (f svgFlag) write(chart func() ([]byte, error)) error {
	if *f.path == "" {
		return nil
	}
	picture, err := chart()
	if err != nil {
		return err
	}
	if err := os.WriteFile(*f.path, picture, 0o666); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}
