package flags

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEssential checks that --help shows the marked flags and their number, that
// --help-all shows all flags, and that without marks --help does.
func TestEssential(t *testing.T) {
	for _, tc := range []struct {
		marks, flag string
		shown       string
		more        bool
	}{
		{"one", "--help", "one help help-all", true},
		{"one", "--help-all", "one two help help-all", false},
		{"", "--help", "one two help", false},
		{"", "--help-all", "one two help", false},
	} {
		cmd := &cobra.Command{Use: "work", RunE: func(*cobra.Command, []string) error { t.Error("it ran"); return nil }}
		cmd.Flags().SortFlags = false
		cmd.Flags().Bool("one", false, "first")
		cmd.Flags().Bool("two", false, "second")
		Essential(cmd, strings.Fields(tc.marks)...)
		SetHelp(cmd)
		cmd.SetFlagErrorFunc(FlagError)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{tc.flag})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, name := range []string{"one", "two", "help", "help-all"} {
			if strings.Contains(out.String(), " --"+name+" ") {
				shown = append(shown, name)
			}
		}
		if got := strings.Join(shown, " "); got != tc.shown || strings.Contains(out.String(),
			"Run 'work --help-all' for 1 more flag.") != tc.more {
			t.Errorf("marks %q, %s shows %q, want %q:\n%s", tc.marks, tc.flag, got, tc.shown, out.String())
		}
	}
}
