//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServe serves a small model, checks that a second server reports the used port in one line, and
// interrupts the first.
func TestServe(t *testing.T) {
	model := filepath.Join(t.TempDir(), "tiny")
	first, _, _ := process(t, "serve", model, "--listen", "127.0.0.1:0", "--context", "32")
	done(t, tinyRun("--recipe", "bf16", "--out", model)...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first.Stderr = w
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	name, rest, _ := strings.Cut(line, " at ")
	url, _, _ := strings.Cut(rest, ";")
	if name != "serving tiny" || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("got %q", line)
	}
	answer, err := http.Post(url+"/completions", "application/json", strings.NewReader(`{"prompt": "The", "max_tokens": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `"completion_tokens":5`) {
		t.Errorf("%d %s, %v", answer.StatusCode, text, err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1")
	if status, stdout, stderr := execute("", "serve", model, "--listen", address); status != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "choose another address with --listen") {
		t.Errorf("used port: status %d, %s%s", status, stdout, stderr)
	}
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}
