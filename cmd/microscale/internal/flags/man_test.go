package flags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// TestManPages checks the whole page of a command: escapes, a table, its commands, flags and parent.
func TestManPages(t *testing.T) {
	root := &cobra.Command{Use: "tool COMMAND", Long: "Do work. Well."}
	cmd := &cobra.Command{
		Use: "work [DIR]", Short: "Work in a directory",
		Long:    "Work with a\\b.\n.hidden begins a line.\n\nModes:\n  fast  quickly\n  safe  slowly",
		Example: "  tool work .\n  tool work --times 2",
		Run:     func(*cobra.Command, []string) {},
	}
	cmd.Flags().Uint("times", 1, "repeat `N` times")
	cmd.Flags().Bool("secret", false, "")
	cmd.Flags().Lookup("secret").Hidden = true
	root.AddCommand(cmd, &cobra.Command{Use: "internal", Hidden: true, Run: cmd.Run})
	dir := t.TempDir()
	if err := WriteManPages(root, dir); err != nil {
		t.Fatal(err)
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(pages) != 2 {
		t.Errorf("the pages are %q", pages)
	}
	const exit = ".SH EXIT STATUS\n0: done. 1: failed; one line on standard error gives the problem. 2: wrong usage.\n"
	for name, want := range map[string]string{
		"tool.1": `.TH TOOL 1 "" "Microscale ` + roff(show.Version()) + "\"\n.SH NAME\ntool \\- Do work\n.SH SYNOPSIS\ntool COMMAND\n.SH " +
			"DESCRIPTION\n.PP\nDo work. Well.\n.SH COMMANDS\n.TP\n\\fBwork\\fP\nWork in a directory\n" + exit,
		"tool-work.1": `.TH TOOL\-WORK 1 "" "Microscale ` + roff(show.Version()) + "\"\n.SH NAME\ntool\\-work \\- Work in a directory\n.SH " +
			"SYNOPSIS\ntool work [DIR] [flags]\n" +
			".SH DESCRIPTION\n.PP\nWork with a\\eb.\n\\&.hidden begins a line.\n.PP\n.nf\nModes:\n  fast  quickly\n  safe  slowly\n.fi\n" +
			".SH OPTIONS\n.TP\n\\fB\\-\\-times N\\fP\nrepeat N times (default 1)\n" +
			".SH EXAMPLES\n.nf\n  tool work .\n  tool work \\-\\-times 2\n.fi\n" + exit + ".SH SEE ALSO\n.BR tool (1)\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", name, err, got, want)
		}
	}
	if err := WriteManPages(root, filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("in a missing directory: %v", err)
	}
}
