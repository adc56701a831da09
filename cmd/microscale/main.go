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
	"strings"

	"github.com/spf13/cobra"
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
	root.SetArgs(negativesLast(root, args))
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "microscale: %s\n", oneLine(err))
	if document != nil && !document.written {
		_ = printJSON(stdout, errorDocument{oneLine(err)}) // the exit status tells
	}
	// What fails before a command starts is its flags and arguments.
	if usage := (usageError{}); started && !errors.As(err, &usage) {
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

// A usageError is a command line that cannot be meant: exit status 2.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

// misuse returns a usageError. The message says what is wrong and what is right.
func misuse(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// oneLine returns the message of err without line breaks, and without what a
// terminal would act on.
func oneLine(err error) string {
	return escaped(strings.NewReplacer("\r", "", "\n", " ").Replace(strings.TrimSpace(err.Error())))
}

// negativesLast moves the arguments of a command behind its flags and a "--"
// where one of them is a negative number, which would be taken for a flag.
func negativesLast(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		return args
	}
	var flags, numbers []string
	negative := false
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		switch {
		case a == "--":
			numbers = append(numbers, rest[i+1:]...)
			i = len(rest)
		case !strings.HasPrefix(a, "-") || a == "-":
			numbers = append(numbers, a)
		case isNumber(a), isProduct(a):
			numbers = append(numbers, a)
			negative = true
		default:
			flags = append(flags, a)
			if takesNext(cmd, a) && i+1 < len(rest) {
				i++
				flags = append(flags, rest[i])
			}
		}
	}
	if !negative {
		return args
	}
	path := strings.Fields(cmd.CommandPath())[1:]
	return slices.Concat(path, flags, []string{"--"}, numbers)
}

// takesNext reports whether a is a flag whose value is the next argument.
func takesNext(cmd *cobra.Command, a string) bool {
	name, ok := strings.CutPrefix(a, "--")
	if !ok || strings.Contains(name, "=") {
		return false
	}
	flag := cmd.Flags().Lookup(name)
	return flag != nil && flag.NoOptDefVal == ""
}
