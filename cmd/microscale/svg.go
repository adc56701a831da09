package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// An svgFlag is the flag --svg of a command that draws a chart.
type svgFlag struct{ path *string }

func addSVG(cmd *cobra.Command, usage string) svgFlag {
	return svgFlag{cmd.Flags().String("svg", "", usage)}
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
