package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestHub checks that a checkpoint on a hub gives the same bytes as one on disk, even if
// connections end early.
func TestHub(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local")
	directory(t, local, twoWeights()...)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	var dropped atomic.Int64
	files := http.FileServer(http.Dir(local))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if name, ok := strings.CutPrefix(r.URL.Path, "/some/model/resolve/"+commit); ok {
			if dropped.Add(1)%3 == 1 {
				panic(http.ErrAbortHandler)
			}
			r.URL.Path = name
			files.ServeHTTP(w, r)
			return
		}
		entries, err := os.ReadDir(local)
		if err != nil {
			t.Error(err)
		}
		var siblings []any
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(local, e.Name()))
			if err != nil {
				t.Error(err)
			}
			sum := sha256.Sum256(data)
			siblings = append(siblings, map[string]any{"rfilename": e.Name(), "size": len(data), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	const source = "hf://some/model"

	t.Setenv("HF_TOKEN", "")
	status, stdout, stderr := execute("", "inspect", source)
	fails(t, status, stdout, stderr, "microscale: "+source+": the hub does not know the model, or it is private")
	t.Setenv("HF_TOKEN", "secret")

	here, there := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "out")
	done(t, "quantize", local, here, "--format", "nvfp4")
	done(t, "quantize", source, there, "--format", "nvfp4", "--resume")
	if a, b := strings.ReplaceAll(snapshot(t, here), here, ""), strings.ReplaceAll(snapshot(t, there), there, ""); a != b {
		t.Errorf("from the hub:\n%s\nfrom the disk:\n%s", b, a)
	}
	done(t, "verify", source, there)
	if text := done(t, "inspect", source); !strings.Contains(text, source) {
		t.Errorf("inspect says\n%s", text)
	}
}
