package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/demo"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
)

const demoLong = `Quantize a small language model that is part of the program, verify the result,
measure what the lower precision costs on a text, and let both models speak.
Every step is printed as a command to repeat. New directory DIR (default demo,
numbered if it exists) keeps the model, the text and the result.

The model has 0.3 million parameters and continues bytes. It was trained on the
documents of this project, so that it says words and no sense.`

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "demo [DIR]",
		Short:   "Quantize, verify, evaluate and run a small model",
		Long:    demoLong,
		Example: "  microscale demo\n  microscale demo results --format mxfp4",
		Args:    cobra.MaximumNArgs(1),
	}
	block := flags.AddFormat(cmd)
	asJSON := addJSON(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var dir string
		format := "nvfp4"
		if len(args) > 0 {
			dir = args[0]
		} else {
			var err error
			if dir, err = training.NewDirectory("demo"); err != nil {
				return err
			}
		}
		if block.Given {
			format = block.Value.Name
		}
		if err := demo.Write(cmd.Context(), dir); err != nil {
			return err
		}
		model, text, result := filepath.Join(dir, demo.Model), filepath.Join(dir, demo.Text), filepath.Join(dir, format)
		steps := []demoResult{}
		const speak = "--temperature 0 --max-tokens 60"
		for _, step := range [][]string{
			{"quantize", model, result, "--format", format},
			{"verify", model, result},
			{"eval", result, "--reference", model, "--text", text},
			append([]string{"run", model, "The scale of a block"}, strings.Fields(speak)...),
			append([]string{"run", result, "The scale of a block"}, strings.Fields(speak)...),
		} {
			line := "microscale " + flags.Quoted(step)
			if !*asJSON {
				fmt.Fprintf(cmd.OutOrStdout(), "\n$ %s\n", line)
				if err := demoStep(cmd, cmd.OutOrStdout(), step); err != nil {
					return err
				}
				continue
			}
			var document bytes.Buffer
			if err := demoStep(cmd, &document, append(step, "--json")); err != nil {
				return err
			}
			steps = append(steps, demoResult{line, document.Bytes()})
		}
		if *asJSON {
			return show.PrintJSON(cmd.OutOrStdout(), map[string][]demoResult{"steps": steps})
		}
		return nil
	}
	return cmd
}

// A demoResult is a command line and the JSON document that it printed.
type demoResult struct {
	Command string          `json:"command"`
	Result  json.RawMessage `json:"result"`
}

// demoStep runs a command line, with its results in out.
func demoStep(cmd *cobra.Command, out io.Writer, step []string) error {
	var started bool
	root := rootCommand(&started)
	root.SetIn(cmd.InOrStdin())
	root.SetOut(out)
	root.SetErr(cmd.ErrOrStderr())
	root.SetArgs(step)
	return root.ExecuteContext(cmd.Context())
}
