package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile holds what a terminal may interpret: ASCII and C1 controls, a line separator,
// a bidirectional override, and a tag beyond 16 bits.
const hostile = "a\x1b[2J\x7f\u0085\u009b31m\u2028\u202e\u2066\U000e0041é世"

// TestHostileNames checks that no command prints terminal controls of names, and that
// JSON preserves the names.
func TestHostileNames(t *testing.T) {
	t.Chdir(t.TempDir())
	name := hostile + ".weight"
	weightsFile(t, "src.safetensors", weight{name: name, shape: []int64{32, 64}})
	done(t, "quantize", "src.safetensors", "dst.safetensors", "--format", "mxfp8")
	for _, args := range [][]string{
		{"inspect", "src.safetensors"}, {"inspect", "src.safetensors", "--each"}, {"inspect", "src.safetensors", "--json"},
		{"lint", "dst.safetensors", "--for", "vllm"},
		{"repair", "dst.safetensors", "new.safetensors", "--dry-run"},
		{"identify", "dst.safetensors", "--source", "src.safetensors"},
		{"diff", "src.safetensors", "dst.safetensors"}, {"convert", "dst.safetensors", "cast.safetensors", "--cast", "fp8-block128"},
		{"verify", "src.safetensors", "dst.safetensors", "--each"}, {"verify", "src.safetensors", "dst.safetensors", "--json"},
		{"quantize", "src.safetensors", "new.safetensors", "--format", "mxfp8", "--dry-run", "--each"},
		{"quantize", "src.safetensors", "new.safetensors", "--format", "mxfp8", "--dry-run", "--json"},
		{"quantize", "src.safetensors", "1.safetensors", "--format", "mxfp8"}, {"quantize", "src.safetensors", "2.safetensors", "--format",
			"mxfp8", "--json"},
		{"inspect", hostile}, {"inspect", hostile, "--json"}, {"train", "--recipe", hostile, "--json"}, {hostile},
	} {
		_, stdout, stderr := execute("", args...)
		for i, r := range stdout + stderr {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Errorf("%q prints %q at byte %d:\n%q", args, r, i, stdout+stderr)
				break
			}
		}
		if args[len(args)-1] != "--json" {
			continue
		}
		var document any
		if err := json.Unmarshal([]byte(stdout), &document); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if !strings.HasPrefix(args[1], "src") {
			continue
		}
		if found, err := json.Marshal(document); err != nil || !strings.Contains(unescaped(t, found), name) {
			t.Errorf("%q: the name is not in\n%s", args, stdout)
		}
	}
	if left, _ := filepath.Glob("new*"); len(left) > 0 {
		t.Errorf("%q is written", left)
	}
}

// unescaped returns a JSON document with the escapes of its strings decoded.
func unescaped(t *testing.T, document []byte) string {
	t.Helper()
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(string(document)))
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		if s, ok := token.(string); ok {
			b.WriteString(s)
			b.WriteByte('\n')
		}
	}
	if !utf8.ValidString(b.String()) {
		t.Error("not UTF-8")
	}
	return b.String()
}
