package flags

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/train"
)

// plain matches the arguments that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%-]+$`)

// quoted returns an argument as a POSIX shell reads it.
func quoted(argument string) string {
	if plain.MatchString(argument) {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}

// Quoted returns arguments as a POSIX shell reads them.
func Quoted(arguments []string) string {
	quotes := make([]string, len(arguments))
	for i, a := range arguments {
		quotes[i] = quoted(a)
	}
	return strings.Join(quotes, " ")
}

// CommandLine returns the command line of cmd with the arguments and flags that were given, for a POSIX
// shell.
func CommandLine(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	for _, argument := range cmd.Flags().Args() {
		line = append(line, quoted(argument))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Hidden { // an argument that has set another flag
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Value.Type() == "bool" {
				line = append(line, fmt.Sprintf("--%s=%s", f.Name, v))
			} else {
				line = append(line, fmt.Sprintf("--%s %s", f.Name, quoted(v)))
			}
		}
	})
	return strings.Join(line, " ")
}

// A FlagValue is a flag and its value as text.
type FlagValue struct{ Name, Value string }

// FlagValues returns all flags of cmd in the order of their names.
func FlagValues(cmd *cobra.Command) (list []FlagValue) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			list = append(list, FlagValue{f.Name, f.Value.String()})
		}
	})
	return list
}

// transient are the flags that a resumed run may change.
var transient = map[string]bool{"out": true, "resume": true, "force": true, "json": true, "threads": true, "checkpoint-every": true,
	"data": true, "timeout": true, "mpi-library": true, "config": true}

// StoredArguments returns the flags of a run as pairs of name and value, for
// TakeArguments.
func StoredArguments(cmd *cobra.Command, corpus *train.Corpus) []string {
	var list []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !transient[f.Name] && !f.Hidden {
			list = append(list, f.Name, f.Value.String())
		}
	})
	for _, s := range corpus.Sources {
		list = append(list, "data", s)
	}
	return list
}

// TakeArguments sets the flags of a resumed run that the command line does not give.
func TakeArguments(cmd *cobra.Command, list []string) error {
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for i := 0; i+1 < len(list); i += 2 {
		if given[list[i]] {
			continue
		}
		if err := cmd.Flags().Set(list[i], list[i+1]); err != nil {
			return fmt.Errorf("the checkpoint was written with --%s %s, which this version does not accept: resume with the version that wrote it",
				list[i], list[i+1])
		}
	}
	return nil
}

// ReplaceTexts replaces the arguments, and the values of flags that are texts or lists of them, by what f returns. Its error
// is the first of f.
func ReplaceTexts(cmd *cobra.Command, args []string, f func(string) (string, error)) (err error) {
	replace := func(list []string) (changed bool) {
		for i, text := range list {
			other, failure := f(text)
			err = cmp.Or(err, failure)
			list[i], changed = other, changed || other != text
		}
		return changed
	}
	replace(args)
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		list, _ := flag.Value.(pflag.SliceValue)
		switch flag.Value.Type() {
		case "stringArray":
			if values := list.GetSlice(); replace(values) {
				err = cmp.Or(err, list.Replace(values))
			}
		case "string":
			if one := []string{flag.Value.String()}; replace(one) {
				err = cmp.Or(err, flag.Value.Set(one[0]))
			}
		}
	})
	return err
}
