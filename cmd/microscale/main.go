// Microscale converts tensors and checkpoints to block-scaled low-precision formats,
// and measures the error.
//
// Results go to standard output, progress and logs to standard error. The exit
// status is
//
//	0  done
//	1  failed: one line on standard error gives the operation, problem and remedy
//	2  wrong usage: an unknown command, flag or value
//
// With --json, standard output is one JSON document: {"error": …} if the command
// failed before it printed another.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { ranks.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := false // whether the code of a command ran
	root := rootCommand(&started)
	var document *watched
	if asksJSON(args) {
		document = &watched{Writer: stdout}
		stdout = document
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	var helpError error
	flags.CatchHelpError(root, ranks.Help(stdout), &helpError)
	root.SetArgs(flags.NegativesLast(root, args, func(a string) bool { return numbers.IsNumber(a) || numbers.IsProduct(a) }))
	cmd, err := root.ExecuteC()
	if err == nil {
		err = helpError
	}
	if err == nil {
		return exitDone
	}
	// Errors before a command starts are about its flags and arguments, or about writing
	// help or version.
	status := exitUsage
	_, isPath := errors.AsType[*fs.PathError](err)
	if _, usage := errors.AsType[show.UsageError](err); (started || isPath) && !usage {
		status = exitFailed
	} else {
		ranks.Misused(cmd, show.Misuse("%v", err))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", show.OneLine(err))
	if document != nil && !document.written {
		_ = show.PrintJSON(cmd.OutOrStdout(), errorDocument{show.OneLine(err)}) // the exit status reports the error
	}
	if status == exitUsage {
		fmt.Fprintf(cmd.ErrOrStderr(), "Run '%s --help' for usage and examples.\n", cmd.CommandPath())
	}
	return status
}

// errorDocument is the JSON document of a command that failed.
type errorDocument struct {
	Error string `json:"error"`
}

// asksJSON reports whether args contain --json.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// A watched writer records whether anything was written to it.
type watched struct {
	io.Writer
	written bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.written = w.written || n > 0
	return n, err
}
