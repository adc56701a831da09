package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UnknownCommand returns the error for a command that root does not have.
func UnknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return UsageError{suggest(fmt.Errorf("unknown command %q%s%s", name, useOneOf, strings.Join(names, ", ")), name, names).Error()}
}

// unknownFlag returns the error for a flag that cmd does not have.
func unknownFlag(cmd *cobra.Command, name string) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := Nearest(name, names)
	if len(near) == 0 {
		return Misuse("unknown flag --%s: %s --help-all lists the flags", name, cmd.CommandPath())
	}
	return Misuse("unknown flag --%s: did you mean --%s?", name, strings.Join(near, " or --"))
}

// useOneOf separates the problem from the choices in the errors of all packages.
const useOneOf = ": use one of "

// suggest replaces the choices in err by those most like name, if there are any.
func suggest(err error, name string, names []string) error {
	near := Nearest(name, names)
	problem, _, choices := strings.Cut(err.Error(), useOneOf)
	if len(near) == 0 || !choices || !strings.HasPrefix(problem, "unknown ") {
		return err
	}
	return fmt.Errorf("%s: did you mean %s?", problem, strings.Join(near, " or "))
}

// Nearest returns the names that begin with name; else those at the smallest edit
// distance from it; else those whose part before the hyphen is. The distance is at most
// a third of the length, and the first letter is the same.
func Nearest(name string, names []string) []string {
	whole := func(n string) string { return n }
	family := func(n string) string { f, _, _ := strings.Cut(n, "-"); return f }
	for _, part := range []func(string) string{whole, family} {
		if near := nearest(strings.ToLower(name), names, part); len(near) > 0 {
			return near
		}
	}
	return nil
}

func nearest(name string, names []string, part func(string) string) (near []string) {
	smallest := max(1, len(name)/3)
	for _, n := range names {
		n, _, _ = strings.Cut(n, "\t") // without the description for the shell
		candidate := strings.ToLower(part(n))
		if name == "" || candidate == "" || candidate[0] != name[0] {
			continue
		}
		d := editDistance(candidate, name)
		if len(name) > 1 && strings.HasPrefix(candidate, name) {
			d = 0
		}
		if d < smallest {
			near, smallest = nil, d
		}
		if d == smallest {
			near = append(near, n)
		}
	}
	return near
}

// editDistance returns the minimum number of bytes to insert, delete or replace in
// order to change a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
