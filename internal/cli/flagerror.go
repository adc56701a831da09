package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// kinds words the types of flags whose values the flag package reads.
var kinds = map[string]string{
	"bool":     "true or false",
	"int":      "a whole number, or is too large",
	"uint":     "a whole number of 0 or more, or is too large",
	"uint64":   "a whole number of 0 or more, or is too large",
	"float32":  "a number, or is too large",
	"float64":  "a number, or is too large",
	"duration": "a time such as 500ms or 2s",
}

// FlagError words the errors of flags as ours are.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if near := nearestFlag(cmd, name); near != "" && unknown.GetSpecifiedShortnames() == "" {
			return Misuse("unknown flag --%s: did you mean --%s?", name, near)
		}
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		if kind, ok := kinds[flag.Value.Type()]; ok {
			return Misuse("--%s: %q is not %s", flag.Name, invalid.GetValue(), kind)
		}
		return Misuse("--%s: %s", flag.Name, OneLine(invalid.Unwrap()))
	}
	return Misuse("%s", OneLine(err))
}
