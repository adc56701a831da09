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

// TestServeKeys checks that a server with keys rejects requests without one, prints no key, and reports wrong options.
func TestServeKeys(t *testing.T) {
	dir := t.TempDir()
	model, keys := filepath.Join(dir, "tiny"), filepath.Join(dir, "keys")
	done(t, tinyRun("--recipe", "bf16", "--out", model)...)
	if err := os.WriteFile(keys, []byte("\nfirst-secret\n second-secret \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server, _, _ := process(t, "serve", model, "--listen", "127.0.0.1:0", "--context", "32", "--api-key", "third-secret", "--api-key-file",
		keys)
	server.Stderr = nil
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(line, " at ")
	url, _, _ := strings.Cut(rest, ";")
	for key, want := range map[string]int{"": 401, "fourth-secret": 401, "first-secret": 200, "second-secret": 200, "third-secret": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/models", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != want || strings.Contains(string(text), "-secret") {
			t.Errorf("key %q: %d %s (%v), want %d", key, answer.StatusCode, text, err, want)
		}
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(lines)
	if err := errors.Join(err, server.Wait()); err != nil || strings.Contains(line+string(text), "-secret") {
		t.Errorf("printed %s%s (%v)", line, text, err)
	}
	if err := os.WriteFile(keys, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flag, value, want string
		status            int
	}{
		{"--api-key-file", keys, "has no keys", exitFailed}, {"--api-key-file", dir, "not a regular file", exitFailed},
		{"--allow-origin", "chat.example", "--allow-origin: got", exitUsage},
	} {
		if status, _, stderr := execute("", "serve", model, "--listen", "127.0.0.1:0", c.flag, c.value); status != c.status ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("%s %s: status %d, %s", c.flag, c.value, status, stderr)
		}
	}
}

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
	if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text),
		`"completion_tokens":5`) {
		t.Errorf("%d %s, %v", answer.StatusCode, text, err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1")
	if status, stdout, stderr := execute("", "serve", model, "--listen", address); status != exitFailed || stdout != "" ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "choose another address with --listen") {
		t.Errorf("used port: status %d, %s%s", status, stdout, stderr)
	}
	if err := first.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}
