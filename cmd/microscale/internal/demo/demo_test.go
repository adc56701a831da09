package demo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrite: a second call completes an interrupted one, and what cannot be read is an error that changes nothing.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, Text)
	want, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(text); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(text); err != nil || string(got) != string(want) {
		t.Errorf("the text that was missing has %d bytes, want %d (%v)", len(got), len(want), err)
	}
	if err := os.Remove(text); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(Text, text); err != nil {
		t.Skip(err)
	}
	if err := Write(t.Context(), dir); err == nil || !strings.Contains(err.Error(), Text) {
		t.Errorf("a file that cannot be read: error %v", err)
	}
	if link, err := os.Readlink(text); err != nil || link != Text {
		t.Errorf("a file that cannot be read became %q (%v)", link, err)
	}
}

// TestWriteCancelled: an interrupted call leaves no part of a file.
func TestWriteCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := filepath.Join(t.TempDir(), "new")
	if err := Write(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory exists (%v)", err)
	}
}
