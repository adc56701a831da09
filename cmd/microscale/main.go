// Microscale quantizes tensors and checkpoints to block-scaled low-precision
// formats, and says what the lower precision cost.
//
// Results go to standard output, progress and logs to standard error. The exit
// status is
//
//	0  done
//	1  failed: one line on standard error says what, where and what to do
//	2  wrong usage: an unknown command, flag or value
//
// With --json, standard output has one JSON document: {"error": …} where the
// command failed before it had another.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/numbers"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := false // whether a command's own code was reached
	root := rootCommand(&started)
	var document *watched
	if asksJSON(args) {
		document = &watched{Writer: stdout}
		stdout = document
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	completions(root)
	root.SetArgs(cli.NegativesLast(root, args, func(a string) bool { return numbers.IsNumber(a) || numbers.IsProduct(a) }))
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "microscale: %s\n", cli.OneLine(err))
	if document != nil && !document.written {
		_ = cli.PrintJSON(stdout, errorDocument{cli.OneLine(err)}) // the exit status tells
	}
	// What fails before a command starts is its flags and arguments.
	if usage := (cli.UsageError{}); started && !errors.As(err, &usage) {
		return exitFailed
	}
	fmt.Fprintf(stderr, "Run '%s --help' for usage and examples.\n", cmd.CommandPath())
	return exitUsage
}

// errorDocument is what --json prints where there is nothing else.
type errorDocument struct {
	Error string `json:"error"`
}

// asksJSON reports whether a command line has --json.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// A watched writer knows whether something was written to it.
type watched struct {
	io.Writer
	written bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.written = w.written || n > 0
	return n, err
}
