package flags

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestNegativesLast checks that operands that begin with a hyphen follow the flags, with the values of
// flags left in place, and that a command line without any is unchanged.
func TestNegativesLast(t *testing.T) {
	root := &cobra.Command{Use: "tool"}
	cmd := &cobra.Command{Use: "work", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("to", "", "")
	cmd.Flags().Bool("raw", false, "")
	cmd.Flags().String("search", "", "")
	cmd.Flags().Lookup("search").NoOptDefVal = "mse"
	root.AddCommand(cmd)
	operand := func(a string) bool { return strings.HasPrefix(a, "-1") }
	for line, want := range map[string]string{
		"work --to a 1 2":           "work --to a 1 2",
		"work -1 --to a 2":          "work --to a -- -1 2",
		"work --to -1 2":            "work --to -1 2",
		"work --to=b -1":            "work --to=b -- -1",
		"work --raw -1":             "work --raw -- -1",
		"work --search -1":          "work --search -- -1",
		"work --unknown -1 2":       "work --unknown -- -1 2",
		"work -- -1 --to":           "work -- -1 --to",
		"work -1 -- --to -x":        "work -- -1 --to -x",
		"work --to":                 "work --to",
		"-1":                        "-1",
		"other -1":                  "other -1",
		"work - -1 --to a --raw -1": "work --to a --raw -- - -1 -1",
	} {
		if got := NegativesLast(root, strings.Fields(line), operand); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
