package limits

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, n := range []int{0, 1, 511, 512, 4096} {
		want := bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadFile(path, int64(n)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
		_, err := ReadFile(path, int64(n-1))
		if cause, ok := errors.AsType[*fs.PathError](err); n > 0 && (!ok || cause.Path != path || !errors.Is(err, TooLarge{int64(n - 1)})) {
			t.Errorf("%d bytes with a limit of %d: got %v", n, n-1, err)
		}
	}
	if _, err := ReadFile(dir, 1); !errors.Is(err, ErrNotRegular) {
		t.Errorf("directory: got %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

func TestTooLarge(t *testing.T) {
	for limit, want := range map[int64]string{1000: "1000 bytes", 64 << 10: "64 KiB", 3 << 20: "3 MiB", 1<<20 + 1: "1048577 bytes"} {
		if got := (TooLarge{limit}).Error(); !strings.HasSuffix(got, " limit of "+want) {
			t.Errorf("limit %d: got %q", limit, got)
		}
	}
}

func TestCheckTOML(t *testing.T) {
	deep := maxTOMLDepth + 1
	for _, tc := range []struct {
		text string
		line string // "": allowed
	}{
		{"", ""},
		{"base = \"a.b\"\n[input.rowwise]\nformat = 'x' # " + strings.Repeat(".", 100) + "\nx = 1.5\n", ""},
		{"\"" + strings.Repeat("a.", 100) + "\" = 1\n", ""},
		{"'" + strings.Repeat("[", 100) + "' = 1\n", ""},
		{"a = \"\"\"\n" + strings.Repeat("{\n", 100) + "\"\"\"\nb = 1\n", ""},
		{"a = \"\\\"" + strings.Repeat("[", 100) + "\"", ""},
		{strings.Repeat("[a]\n", 100), ""},
		{strings.Repeat("a.b=1\n", 100), ""},
		{"x = [" + strings.Repeat("1.5, ", 100) + "]", ""},
		{"\n" + strings.Repeat("a.", deep) + "a = 1", "line 2: "},
		{"[" + strings.Repeat("a . ", deep) + "a]", "line 1: "},
		{strings.Repeat("\"a\".", deep) + "a = 1", "line 1: "},
		{"\n\na = " + strings.Repeat("[", deep), "line 3: "},
		{strings.Repeat("a={", deep), "line 1: "},
		{"a = '''\n'''\nb = " + strings.Repeat("[\n", deep), "line 19: "},
	} {
		err := CheckTOML([]byte(tc.text))
		if tc.line == "" && err != nil || tc.line != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.line)) {
			t.Errorf("%.60q: got %v, want %q", tc.text, err, tc.line)
		}
	}
}
