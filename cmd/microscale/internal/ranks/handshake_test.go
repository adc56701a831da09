package ranks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDifference compares the command lines of ranks: threads may differ, other flags and commands not.
func TestDifference(t *testing.T) {
	line := func(name string, args ...string) []setting {
		t.Helper()
		cmd := &cobra.Command{Use: name}
		cmd.Flags().Int("threads", 0, "")
		cmd.Flags().StringArray("data", nil, "")
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return settings(cmd)
	}
	first := line("train", "--data", "a", "--threads", "1")
	if err := difference([][]setting{first, line("train", "--data", "a", "--threads", "2")}); err != nil {
		t.Errorf("ranks with different threads: %v", err)
	}
	for want, other := range map[string][]setting{
		`--data is "[a]" on rank 0 and "[b]" on rank 2`:            line("train", "--data", "b"),
		`the command is "train" on rank 0 and "compare" on rank 2`: line("compare", "--data", "a"),
		"rank 2 has other flags than rank 0":                       first[:len(first)-1],
	} {
		if err := difference([][]setting{first, first, other}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestVersionOf compares programs of the same version.
func TestVersionOf(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, path := range paths {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[string]bool{"v1.2.3": true, "devel": false, "unknown": false,
		"v1.2.4-0.20260101000000-0123456789ab+dirty": false} {
		if got := versionOf(version, paths[0]) == versionOf(version, paths[1]); got != want {
			t.Errorf("%s: two programs have the same version: got %v, want %v", version, got, want)
		}
		if versionOf(version, paths[0]) != versionOf(version, paths[0]) {
			t.Errorf("%s: got two versions of one program", version)
		}
	}
	if got := versionOf("devel", filepath.Join(dir, "c")); got != "devel" {
		t.Errorf("a file that does not exist: got %q, want devel", got)
	}
}
