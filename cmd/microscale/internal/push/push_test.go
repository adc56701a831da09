package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/push/pushtest"
	"github.com/microscale-go/microscale/hf/hub"
	"github.com/microscale-go/microscale/internal/ranges"
)

// written writes files of several kinds to a directory: small ones, an object, and one that is sent in parts.
func written(t *testing.T) (dir string, content map[string][]byte) {
	t.Helper()
	dir = t.TempDir()
	weights := make([]byte, 4*pushtest.Part+17)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(weights)
	content = map[string][]byte{"config.json": []byte("{}"), "empty": nil, "model.safetensors": weights,
		"folder/tokenizer.json": weights[:4<<10]}
	for name, data := range content {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, hidden := range []string{".gitattributes", ".git/config"} {
		at := filepath.Join(dir, hidden)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, content
}

// pushed pushes a directory without waits.
func pushed(ctx context.Context, t *testing.T, dir string, o Options) (*Result, []*File, error) {
	t.Helper()
	client, err := hub.FromEnvironment(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Message = "Upload"
	o.retry = ranges.Retry{Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	r, err := hub.Parse("hf://me/model")
	if err != nil {
		t.Fatal(err)
	}
	result, err := Push(ctx, client, r, files, o)
	return result, files, err
}

// holds reports whether the repository has these files and no others.
func holds(s *pushtest.Server, content map[string][]byte) bool {
	r := s.Repository("me/model")
	if r == nil || len(r.Files) != len(content) {
		return false
	}
	for name, data := range content {
		if got, ok := r.Files[name]; !ok || !bytes.Equal(got, data) {
			return false
		}
	}
	return true
}

// TestPush pushes twice: the second time, objects are not sent.
func TestPush(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	result, files, err := pushed(t.Context(), t, dir, Options{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	if !result.Created || !result.Private || len(result.Commit) != 40 || !holds(s, content) || len(files) != len(content) {
		t.Errorf("got %+v, %d files", result, len(files))
	}
	const objects = 5 + 1 // parts of one, and another
	if s.Puts() != objects || s.Repository("me/model").Subject != "Upload" {
		t.Errorf("got %d puts", s.Puts())
	}
	if result, _, err = pushed(t.Context(), t, dir, Options{Private: true}); err != nil || result.Created || s.Puts() != objects {
		t.Errorf("again: %+v, %d puts, %v", result, s.Puts(), err)
	}
}

// TestLost pushes to a hub of which the answers to some requests are lost: it has done what they ask for.
func TestLost(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	lost := map[string]bool{}
	s.Lose = func(r *http.Request) bool {
		first := !lost[r.Method+r.URL.Path]
		lost[r.Method+r.URL.Path] = true
		return first
	}
	result, _, err := pushed(t.Context(), t, dir, Options{})
	if err != nil || !holds(s, content) {
		t.Fatal(err)
	}
	if r := s.Repository("me/model"); r.Commits != 1 || result.Commit != fmt.Sprintf("%040x", 1) {
		t.Errorf("got commit %s of %d", result.Commit, r.Commits)
	}
}

// TestOtherCommit checks that a commit that another push made meanwhile is not taken for this one.
func TestOtherCommit(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "model.safetensors"), content["model.safetensors"], 0o600); err != nil {
		t.Fatal(err)
	}
	var busy atomic.Bool
	s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/commit/") && busy.CompareAndSwap(false, true) {
			if _, _, err := pushed(t.Context(), t, other, Options{}); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	if _, _, err := pushed(t.Context(), t, dir, Options{}); !errors.Is(err, fs.ErrExist) || s.Repository("me/model").Commits != 1 {
		t.Errorf("got %v", err)
	}
}

// TestPerhaps pushes to a hub that makes the commit, loses the answer, and then fails: there is a commit if the branch can be read,
// and perhaps if not.
func TestPerhaps(t *testing.T) {
	for _, silent := range []bool{false, true} {
		s := pushtest.New(t)
		dir, _ := written(t)
		var commits atomic.Int64
		s.Lose = func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/commit/") && commits.Add(1) == 1 }
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			fault := commits.Load() > 0 && (silent || strings.Contains(r.URL.Path, "/commit/"))
			if fault {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return fault
		}
		_, _, err := pushed(t.Context(), t, dir, Options{})
		if ok := err == nil; ok == silent || silent && !strings.Contains(err.Error(), "perhaps there is a commit") {
			t.Errorf("silent: %v: got %v", silent, err)
		}
	}
}

// TestRemoved pushes one file of weights to a repository with two and an index: these are removed, and other files stay. A GGUF
// file removes none.
func TestRemoved(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	earlier := t.TempDir()
	old := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
	kept := []string{"consolidated.safetensors", "folder/model.safetensors", "notes.txt"}
	for _, name := range slices.Concat(old, kept) {
		at := filepath.Join(earlier, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if result, _, err := pushed(t.Context(), t, earlier, Options{}); err != nil || len(result.Removed) > 0 {
		t.Fatal(result, err)
	}
	other := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(other, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if result, _, err := pushed(t.Context(), t, other, Options{}); err != nil || len(result.Removed) > 0 {
		t.Fatalf("a GGUF file removed %v (%v)", result.Removed, err)
	}
	kept = append(kept, "model.gguf")
	content["model.gguf"] = []byte("GGUF")
	result, _, err := pushed(t.Context(), t, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kept[:len(kept)-1] {
		content[name] = []byte(name)
	}
	if slices.Sort(result.Removed); !slices.Equal(result.Removed, old) || !holds(s, content) {
		t.Errorf("removed %v; the repository has %d files", result.Removed, len(s.Repository("me/model").Files))
	}
}

// TestLink pushes a folder by a link to it, and rejects one without weights.
func TestLink(t *testing.T) {
	dir, content := written(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip(err)
	}
	if files, err := Files(link); err != nil || len(files) != len(content) {
		t.Errorf("got %d files, want %d (%v)", len(files), len(content), err)
	}
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := Files(link); err == nil || !strings.Contains(err.Error(), "no .safetensors files") {
		t.Errorf("without weights: %v", err)
	}
}

// TestProgress checks that parts that are sent again count once, and that reports have their order.
func TestProgress(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	var n atomic.Int64
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		busy := r.Method == http.MethodPut && n.Add(1)%2 == 1
		if busy {
			_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return busy
	}
	var last, total int64 // without a lock: the race detector checks that reports come one by one
	_, _, err := pushed(t.Context(), t, dir, Options{Progress: func(done, all int64) {
		if done > all {
			t.Errorf("%d of %d bytes", done, all)
		}
		last, total = done, all
	}})
	if want := int64(len(content["model.safetensors"]) + len(content["folder/tokenizer.json"])); err != nil || last != want || total != want {
		t.Errorf("%d of %d bytes, want %d (%v)", last, total, want, err)
	}
}

// TestBusy pushes to a hub that is busy and ends connections.
func TestBusy(t *testing.T) {
	s := pushtest.New(t)
	dir, content := written(t)
	var n atomic.Int64
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		switch n.Add(1) % 4 {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case 2:
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if _, _, err := pushed(t.Context(), t, dir, Options{}); err != nil || !holds(s, content) {
		t.Error(err)
	}
}

// TestKilled ends pushes at every request: the repository has all files or none, and the next push completes it.
func TestKilled(t *testing.T) {
	for kill := int64(1); ; kill++ {
		s := pushtest.New(t)
		dir, content := written(t)
		var n atomic.Int64
		var over atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		s.Fault = func(http.ResponseWriter, *http.Request) bool {
			if n.Add(1) >= kill && !over.Load() { // late requests of the first push may still read Fault
				cancel()
				panic(http.ErrAbortHandler)
			}
			return false
		}
		_, _, err := pushed(ctx, t, dir, Options{})
		cancel()
		if r := s.Repository("me/model"); r != nil && len(r.Files) > 0 != (err == nil) {
			t.Errorf("killed at %d: %d files (%v)", kill, len(r.Files), err)
		}
		over.Store(true)
		if _, _, again := pushed(t.Context(), t, dir, Options{}); again != nil || !holds(s, content) {
			t.Errorf("killed at %d: then %v", kill, again)
		}
		if err == nil {
			if kill < 10 {
				t.Errorf("only %d requests", kill)
			}
			return
		}
	}
}

// TestErrors checks the errors of pushes that must not succeed.
func TestErrors(t *testing.T) {
	dir, _ := written(t)
	status := func(part string, code int) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, part) {
				w.WriteHeader(code)
			}
			return strings.Contains(r.URL.Path, part)
		}
	}
	text := func(part, answer string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, part) {
				_, _ = w.Write([]byte(answer))
			}
			return strings.Contains(r.URL.Path, part)
		}
	}
	misnamed := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "batch") {
			return false
		}
		var q struct{ Objects []map[string]any }
		if json.NewDecoder(r.Body).Decode(&q) == nil && q.Objects[0]["size"].(float64) > pushtest.Part {
			q.Objects[0]["actions"] = map[string]any{"upload": map[string]string{"href": "https://[::1/x?signature=1"}}
		}
		_ = json.NewEncoder(w).Encode(q) // the client may be gone
		return true
	}
	for name, tc := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request) bool
		want  string
	}{
		"may not create": {status("create", http.StatusForbidden), "set HF_TOKEN to a token that may write"},
		"not JSON":       {text("preupload", "<html>"), "does not have the hub's API"},
		"no modes":       {text("preupload", "{}"), "does not say how to send"},
		"no objects":     {text("batch", "{}"), "does not answer for the object"},
		"conflict":       {status("commit", http.StatusConflict), "another push was faster; run again"},
		"expired":        {status("/part/", http.StatusForbidden), "the server that the hub names responded 403 Forbidden: its address expired"},
		"no address":     {misnamed, "hf://me/model/model.safetensors: the hub names an address that is none: missing ']' in host"},
		"always busy":    {status("verify", http.StatusBadGateway), "502 Bad Gateway (6 attempts)"},
	} {
		s := pushtest.New(t)
		s.Fault = tc.fault
		if _, _, err := pushed(t.Context(), t, dir, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "signature") {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	pushtest.New(t)
	if _, _, err := pushed(t.Context(), t, dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pushed(t.Context(), t, dir, Options{Private: true}); err == nil ||
		!strings.Contains(err.Error(), "the repository is public: omit") {
		t.Errorf("private: %v", err)
	}
	t.Setenv("HF_TOKEN", "")
	if _, _, err := pushed(t.Context(), t, dir, Options{}); !errors.Is(err, fs.ErrPermission) ||
		!strings.Contains(err.Error(), "set HF_TOKEN") {
		t.Errorf("no token: %v", err)
	}
}
