package main

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
)

// TestVersionVerbose checks that each kernel is listed, and that those run whose features this processor has.
func TestVersionVerbose(t *testing.T) {
	status, out, stderr := execute("", "version", "--verbose")
	if status != exitDone {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	lines := map[string]string{}
	for line := range strings.Lines(out) {
		if name, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			lines[name] = strings.TrimSpace(state)
		}
	}
	have := " " + cpu.Detected().String() + " "
	for _, k := range gemm.Kernels() {
		want := "runs"
		for _, f := range strings.Fields(k.Needs) {
			if !strings.Contains(have, " "+f+" ") {
				want = strings.TrimPrefix(want, "runs")
				if want == "" {
					want = "lacks"
				}
				want += " " + f
			}
		}
		if lines[k.Name] != want {
			t.Errorf("%s: got %q, want %q", k.Name, lines[k.Name], want)
		}
	}
}
