package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestReceiptFlags: receipts that would be ignored, or not written, are errors before the work, and one that cannot be written leaves the
// result printed.
func TestReceiptFlags(t *testing.T) {
	model, text := tinyModel(t)
	at := func(name string) string { return filepath.Join(t.TempDir(), name) }
	command := []string{"eval", model, "--reference", model, "--text", text, "--method", "all", "--context", "32"}
	receipt := at("receipt")
	done(t, append(command, "--receipt", receipt)...)
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--against " + receipt + " --against " + receipt, "--against: got 2 receipts, want one: "},
		{"--against ", "--against is empty: name a file, or omit it"},
		{"--receipt ", "--receipt is empty: name a file, or omit it"},
		{"--receipt a --receipt b", "--receipt: got 2 files for 1 model: name one, or one for MODEL and each --beside MODEL"},
	} {
		status, stdout, stderr := execute("", append(command, strings.Split(tc.args, " ")...)...)
		if status != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "microscale: "+tc.want) {
			t.Errorf("%s: got status %d, %q, %q", tc.args, status, stdout, stderr)
		}
	}
	tooLong := at(strings.Repeat("x", 300))
	status, stdout, stderr := execute("", append(command, "--receipt", tooLong)...)
	if status != exitFailed || !strings.Contains(stdout, "KL") || !strings.Contains(stderr, "write the receipt ") {
		t.Errorf("a name too long: got status %d, %q, %q", status, stdout, stderr)
	}
}
