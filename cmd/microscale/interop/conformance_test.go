package interop

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestConformance runs the corpus of conformance: its decoder in NumPy, the same with ml_dtypes' numbers, and one that is wrong.
func TestConformance(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	interpreter := python(t, append([]string{"ml_dtypes==0.6.0"}, pythonSafetensors...)...)
	lines := strings.Split(strings.TrimSpace(string(scriptOutput(t, interpreter, "conformance.py", root))), "\n")
	if len(lines) != 3 || lines[0] != lines[1] || lines[0] == "0" || !strings.Contains(lines[2], " by te: ") {
		t.Errorf("got %q", lines)
	}
}
