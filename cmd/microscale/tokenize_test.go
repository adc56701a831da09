package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTokenize(t *testing.T) {
	dir := t.TempDir()
	const file = `{"model": {"type": "BPE", "vocab": {"H": 0, "i": 1, "Hi": 2, "Ġ": 3, "!": 4}, "merges": ["H i"]},
		"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}, "added_tokens": [{"id": 5, "content": "<s>", "special": true}]}`
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("Hi Hi!<s>"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ stdin, line, want string }{
		{"Hi Hi!<s>", "tokenize " + dir, "2 3 2 4 5\n"},
		{"", "tokenize " + filepath.Join(dir, "tokenizer.json") + " " + text, "2 3 2 4 5\n"},
		{"Hi Hi!<s>", "tokenize " + dir + " -", "2 3 2 4 5\n"},
		{"Hi", "tokenize --json " + dir, "{\n  \"ids\": [\n    2\n  ]\n}\n"},
		{"Hi!", "tokenize --raw " + dir, "\x02\x00\x00\x00\x04\x00\x00\x00"},
		{"\x02\x00\x00\x00\x04\x00\x00\x00", "tokenize --raw --decode " + dir, "Hi!"},
		{"2 3\n2 5", "tokenize --decode " + dir, "Hi Hi<s>"},
		{"2 5", "tokenize --decode --skip-special --json " + dir, "{\n  \"text\": \"Hi\"\n}\n"},
		{"", "tokenize " + dir, "\n"},
	} {
		status, stdout, stderr := execute(c.stdin, strings.Fields(c.line)...)
		if status != 0 || stdout != c.want {
			t.Errorf("%s: status %d, got %q, want %q; %s", c.line, status, stdout, c.want, stderr)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, nil)
	for _, c := range []struct {
		stdin, line, want string
		status            int
	}{
		{"Hi", "tokenize --skip-special " + dir, "--skip-special applies to --decode", 2},
		{"", "tokenize", "want MODEL and at most one FILE", 2},
		{"", "tokenize /none", "/none: no such file", 1},
		{"", "tokenize " + filepath.Dir(dir), "tokenizer.json: file does not exist: name a model with a tokenizer, or a GGUF file", 1},
		{"", "tokenize " + os.DevNull, os.DevNull + ": not a regular file", 1},
		{"", "tokenize " + empty, empty + ": tokenizer: the file is empty: want a tokenizer.json", 1},
		{"", "tokenize " + dir + " gone", "gone: no such file or directory: name a file, or pass text on standard input", 1},
		{"x", "tokenize --decode " + dir, `"x" is not a token id`, 1},
		{"9", "tokenize --decode " + dir, "no token has id 9", 1},
		{"abc", "tokenize --decode --raw " + dir, "got 3 bytes", 1},
		{"", "tokenize " + text, "invalid character", 1},
	} {
		status, _, stderr := execute(c.stdin, strings.Fields(c.line)...)
		if status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, want %d and %q; got %s", c.line, status, c.status, c.want, stderr)
		}
	}
}
