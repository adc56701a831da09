package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// kinds describes the values that pflag parses.
var kinds = map[string]string{
	"bool":     "true or false: omit it, the flag needs no value",
	"int":      "an integer, or is out of range",
	"intSlice": "a list of integers such as 16,32",
	"uint":     "an integer of 0 or more, or is out of range",
	"uint64":   "an integer of 0 or more, or is out of range",
	"float32":  "a number, or is out of range",
	"float64":  "a number, or is out of range",
	"duration": "a duration such as 500ms or 2s",
}

// FlagError returns err, an error of the flags of cmd, as a UsageError. It leaves a
// request for help unchanged. If an argument before the flag names no command below
// cmd, that is the error: the flag is one of the command meant.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case cmd.HasSubCommands() && cmd.Flags().NArg() > 0:
		return UnknownCommand(cmd, cmd.Flags().Arg(0))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	case errors.As(err, &invalid):
		return show.Misuse("--%s: %s", invalid.GetFlag().Name, show.OneLine(invalidValue(err)))
	}
	return show.Misuse("%s", show.OneLine(err))
}

// invalidValue returns the problem of err, an error of the value of a flag, without the flag.
func invalidValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	if kind, ok := kinds[invalid.GetFlag().Value.Type()]; ok {
		return fmt.Errorf("%q is not %s", invalid.GetValue(), kind)
	}
	return invalid.Unwrap()
}
