package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Interrupted words the error of a job that was interrupted.
func Interrupted(err error, what string) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %s", what)
	}
	return err
}

// A UsageError is a command line that cannot be meant: exit status 2.
type UsageError struct{ message string }

func (e UsageError) Error() string { return e.message }

// Misuse returns a usageError. The message says what is wrong and what is right.
func Misuse(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// OneLine returns the message of err without line breaks, and without what a
// terminal would act on.
func OneLine(err error) string {
	return Escaped(strings.NewReplacer("\r", "", "\n", " ").Replace(strings.TrimSpace(err.Error())))
}
