package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UnknownCommand returns the error of a command that root does not have.
func UnknownCommand(root *cobra.Command, name string) error {
	if root.SuggestionsMinimumDistance == 0 {
		root.SuggestionsMinimumDistance = 2 // cobra's own default
	}
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return Misuse("unknown command %q: did you mean %s?", name, strings.Join(near, " or "))
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return Misuse("unknown command %q: use one of %s", name, strings.Join(names, ", "))
}

// nearestFlag returns the flag of cmd whose name is most like the given one, or
// nothing where none is like it.
func nearestFlag(cmd *cobra.Command, name string) (near string) {
	least := 1 + len(name)/3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := EditDistance(f.Name, name)
		if strings.HasPrefix(f.Name, name) {
			d = 0
		}
		if d <= least && (near == "" || d < least) {
			near, least = f.Name, d
		}
	})
	return near
}

// EditDistance returns the least number of bytes to insert, delete or replace
// that turn a into b.
func EditDistance(a, b string) int {
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
