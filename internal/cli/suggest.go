package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Parent makes cmd, the parent of other commands, print its help. An unknown command is an error.
func Parent(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs // RunE names the unknown command
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return UnknownCommand(cmd, args[0])
		}
		return cmd.Help()
	}
}

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

// useOneOf precedes the choices in errors of this package.
const useOneOf = ": use one of "

// choices matches the choices at the end of the errors of all packages.
var choices = regexp.MustCompile(`: (use|want) one of .*`)

// suggest replaces the choices in err by those most like name, if there are any.
func suggest(err error, name string, names []string) error {
	near := Nearest(name, names)
	place := choices.FindStringIndex(err.Error())
	if len(near) == 0 || place == nil || !strings.Contains(err.Error(), "unknown ") {
		return err
	}
	return fmt.Errorf("%s: did you mean %s?", err.Error()[:place[0]], strings.Join(near, " or "))
}

// unknownName matches errors that end in an unknown name and its choices.
var unknownName = regexp.MustCompile(`unknown [^"]*"([^"]*)": use one of (.*)$`)

// suggestInText is suggest with the unknown name and the choices that the text of err ends in.
func suggestInText(err error) error {
	m := unknownName.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	return suggest(err, m[1], strings.Split(m[2], ", "))
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

// editDistance returns the minimum number of bytes to insert, delete, replace or swap
// with the next one in order to change a into b.
func editDistance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			if a[i] == b[j] {
				next[j+1] = row[j]
				continue
			}
			next[j+1] = 1 + min(row[j], row[j+1], next[j])
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], 1+before[j-1])
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
