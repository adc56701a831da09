package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// A UsageError reports a wrong command line. The exit status is 2.
type UsageError struct{ Message string }

func (e UsageError) Error() string { return e.Message }

// Misuse returns a UsageError. The message gives the problem and the remedy.
func Misuse(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// Interrupted replaces the error of a canceled job by one that reports what is left.
func Interrupted(err error, left string) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %s", left)
	}
	return err
}

// OneLine returns the message of err as one line without terminal controls.
func OneLine(err error) string {
	return Escaped(strings.NewReplacer("\r", "", "\n", " ").Replace(strings.TrimSpace(err.Error())))
}

// PrintWarnings prints warnings, one per line.
func PrintWarnings(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintf(w, "microscale: warning: %s\n", Escaped(text))
	}
}

// Notices returns a function that prints a warning, unless it is the last one again. Several goroutines may call it.
func Notices(w io.Writer) func(line string) {
	var lock sync.Mutex
	last := ""
	return func(line string) {
		lock.Lock()
		defer lock.Unlock()
		if line != last {
			PrintWarnings(w, []string{line})
		}
		last = line
	}
}
