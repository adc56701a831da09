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

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/safetensors"
)

// serveHub serves a directory as the model some/model of a hub. Every third connection for a file
// ends early.
func serveHub(t *testing.T, local string) {
	t.Helper()
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
			siblings = append(siblings, map[string]any{"rfilename": e.Name(), "size": len(data),
				"lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
}

// TestHub checks that a checkpoint on a hub gives the same bytes as one on disk, even if
// connections end early.
func TestHub(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local")
	directory(t, local, twoWeights()...)
	serveHub(t, local)
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

// tinyModel writes a model with a tokenizer of bytes, and a text.
func tinyModel(t *testing.T) (local, text string) {
	t.Helper()
	local = filepath.Join(t.TempDir(), "local")
	m, err := decoder.New(decoder.Config{VocabSize: 300, HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 1, NumAttentionHeads: 2,
		MaxPositionEmbeddings: 64}, decoder.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Save(local, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	vocabulary := map[string]int{}
	for c := range 256 { // of GPT-2: visible characters for bytes
		name := string(rune(c))
		if c <= ' ' || c >= 0x7f {
			name = string(rune(0x100 + c))
		}
		vocabulary[name] = c
	}
	data, err := json.Marshal(map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false}, "decoder": map[string]any{"type": "ByteLevel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text = filepath.Join(t.TempDir(), "text")
	for name, data := range map[string][]byte{filepath.Join(local, "tokenizer.json"): data, text: []byte(strings.Repeat("onthehub", 40))} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return local, text
}

// TestHubModel checks that run, eval and calibrate read a model on a hub, with its tokenizer, as they
// read it on disk.
func TestHubModel(t *testing.T) {
	local, text := tinyModel(t)
	serveHub(t, local)
	t.Setenv("HF_TOKEN", "secret")
	const source = "hf://some/model"
	for _, args := range [][]string{{"run", "MODEL", "onthehub", "--max-tokens", "4"}, {"eval", "MODEL", "--text", text},
		{"calibrate", "MODEL", "--text", text, "--out", "OUT"}} {
		var outputs []string
		for _, model := range []string{local, source} {
			out := filepath.Join(t.TempDir(), "amax.toml")
			var given []string
			for _, arg := range args {
				given = append(given, strings.NewReplacer("MODEL", model, "OUT", out).Replace(arg))
			}
			printed, _, _ := strings.Cut(strings.ReplaceAll(done(t, given...), model, "MODEL"), ", in ") // the time
			written, _ := os.ReadFile(out)
			outputs = append(outputs, strings.ReplaceAll(printed, out, "OUT")+string(written))
		}
		if outputs[0] != outputs[1] || outputs[0] == "" {
			t.Errorf("%s from the hub:\n%s\nfrom the disk:\n%s", args[0], outputs[1], outputs[0])
		}
	}
}
