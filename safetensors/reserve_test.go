package safetensors

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReserve checks a file whose header has bytes that are filled at the end: it resumes with and
// without them, and any other byte of the header must be that of the layout.
func TestReserve(t *testing.T) {
	const placeholder, value = "0000", "1a2b"
	l, err := NewLayout(goldenSpecs, map[string]string{"sum": placeholder, "format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"zzz": "occurs 0 times", "a": "want once"} {
		if err := l.Reserve(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("reserve %q: error %v, want %q", text, err, want)
		}
	}
	if err := l.Reserve(placeholder); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	w, err := Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Fill(value + "5"); err == nil || !strings.Contains(err.Error(), "got 5 bytes, want the 4 that the header reserves") {
		t.Errorf("a longer value: error %v", err)
	}
	if err := w.Fill(value); err != nil {
		t.Fatal(err)
	}
	if err := w.Suspend(); err != nil {
		t.Fatal(err)
	}
	if w, err = Reopen(path, l); err != nil {
		t.Fatal(err)
	}
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "b.weight", []byte{4, 5, 6, 7}, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := l.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Filled(); got != value {
		t.Errorf("the layout reads %q, want %q", got, value)
	}
	plain, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if got := plain.Metadata()["sum"]; got != value {
		t.Errorf("the metadata has %q, want %q", got, value)
	}
	damageHeader(t, path, l)
}

// damageHeader checks that the layout accepts no file with another byte in the header, before or after
// the reserved ones.
func damageHeader(t *testing.T, path string, l *Layout) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := l.HeaderBytes()
	reserved := bytes.Index(header, []byte("0000\""))
	for _, at := range []int{lengthSize, reserved - 1, reserved + 4, len(header) - 1} {
		other := bytes.Clone(whole)
		other[at] ^= 1
		if err := os.WriteFile(path, other, 0o600); err != nil {
			t.Fatal(err)
		}
		_, opened := l.Open(path)
		_, reopened := Reopen(path, l)
		for _, err := range []error{opened, reopened} {
			if _, ok := errors.AsType[*ContainerError](err); !ok {
				t.Errorf("with another byte %d: error %v", at, err)
			}
		}
	}
}
