package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/hf"
)

const model = "hf://some/model"

func open(t *testing.T, c *Client) *hf.Checkpoint {
	t.Helper()
	checkpoint, err := c.Open(context.Background(), model)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	return checkpoint
}

// readAll reads every tensor in the order of the files, in small parts, and compares it with the
// content of the files.
func (s *server) readAll(c *hf.Checkpoint, threads int) error {
	var wg sync.WaitGroup
	errs := make(chan error, threads)
	var next atomic.Int64
	tensors := c.Tensors()
	for range threads {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tensors) {
					return
				}
				t := tensors[i]
				content := s.files[t.Shard.Name]
				data := content[int64(len(content))-t.Shard.File.Tensors()[len(t.Shard.File.Tensors())-1].End:]
				for from := t.Begin; from < t.End; from += 1 << 18 {
					p := make([]byte, min(1<<18, t.End-from))
					if err := c.ReadTensorAt(t.Name, p, from-t.Begin); err != nil {
						errs <- err
						return
					}
					if !bytes.Equal(p, data[from:from+int64(len(p))]) {
						errs <- errors.New(t.Name + ": the bytes differ")
						return
					}
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

func TestOpen(t *testing.T) {
	s := newServer(t)
	c := s.client()
	checkpoint := open(t, c)
	if checkpoint.Path != model || checkpoint.Config == nil || !checkpoint.Index || len(checkpoint.Shards()) != 2 {
		t.Errorf("got %+v", checkpoint)
	}
	var others []string
	for _, o := range checkpoint.Others() {
		content, err := os.ReadFile(o.Path)
		if err != nil || !bytes.Equal(content, s.files[o.Name]) {
			t.Errorf("%s: content differs (%v)", o.Name, err)
		}
		others = append(others, o.Name)
	}
	if want := []string{"1_Pooling/config.json", "README.md", "generation_config.json", "tokenizer_config.json"}; !slices.Equal(others, want) {
		t.Errorf("others: got %q, want %q", others, want)
	}
	var skipped []string
	for _, k := range checkpoint.Skipped() {
		skipped = append(skipped, k.Name+": "+k.Reason)
	}
	if want := []string{".gitattributes: hidden", "onnx/model.safetensors: weights in a folder",
		"pytorch_model.bin: PyTorch weights"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped: got %q, want %q", skipped, want)
	}
	if got := s.requests("other"); len(got) != 2 {
		t.Errorf("opening two shards: got requests %q, want 2", got)
	}
	for _, threads := range []int{1, 4} {
		if err := s.readAll(checkpoint, threads); err != nil {
			t.Fatal(err)
		}
	}
	// The client requests each URL from the hub once. It fetches a chunk again if it was dropped from
	// the cache.
	if got := s.requests("hub /some/model/resolve/" + commit + "/model-"); len(got) != 2 {
		t.Errorf("got requests to the hub %q", got)
	}
	for _, l := range s.requests("other") {
		if n := len(s.requests(l)); n > 3 {
			t.Errorf("%s: got %d requests", l, n)
		}
	}
}

// TestCacheLayout checks that the cache has the layout of huggingface_hub, and that cached files are
// not downloaded.
func TestCacheLayout(t *testing.T) {
	s := newServer(t)
	c := s.client()
	open(t, c)
	dir := filepath.Join(c.Cache, "models--some--model")
	if ref, err := os.ReadFile(filepath.Join(dir, "refs", "main")); err != nil || string(ref) != commit {
		t.Errorf("refs/main: got %q (%v)", ref, err)
	}
	at := filepath.Join(dir, "snapshots", commit, "1_Pooling", "config.json")
	target, err := os.Readlink(at)
	if want := filepath.Join("..", "..", "..", "blobs", gitSum([]byte("{}"))); err != nil || target != want {
		t.Errorf("link: got %q (%v), want %q", target, err, want)
	}
	before := len(s.requests("hub /some"))
	open(t, c)
	if after := len(s.requests("hub /some")); after-before != 2 { // the two shards
		t.Errorf("got %d requests, want those of the two shards", after-before)
	}
	for name, content := range s.files {
		if large(name) && !strings.Contains(name, "/") {
			if err := os.WriteFile(filepath.Join(dir, "snapshots", commit, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	others := len(s.requests("other"))
	if err := s.readAll(open(t, c), 2); err != nil {
		t.Fatal(err)
	}
	if len(s.requests("other")) != others {
		t.Error("cached weights were fetched")
	}
	left, err := filepath.Glob(filepath.Join(dir, "blobs", "*incomplete*"))
	if len(left) > 0 || err != nil {
		t.Errorf("got incomplete files %q (%v)", left, err)
	}
}

func TestDroppedConnections(t *testing.T) {
	s := newServer(t)
	var asked atomic.Int64
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		name, ok := strings.CutPrefix(what, "other ")
		if !ok {
			return false
		}
		switch asked.Add(1) % 3 {
		case 0:
			panic(http.ErrAbortHandler) // before the first byte
		case 1:
			s.partly(w, r, s.files[name], 300_000)
		}
		return false
	}
	if err := s.readAll(open(t, s.client()), 2); err != nil {
		t.Fatal(err)
	}
	resumed := slices.ContainsFunc(s.requests("other"), func(l string) bool { return strings.Contains(l, "bytes=300000-") })
	if !resumed {
		t.Error("no request resumes after a dropped connection")
	}
}

// TestSilence checks that requests are repeated, a limited number of times, if a server stops in the
// middle of a response but keeps the connection.
func TestSilence(t *testing.T) {
	const silence = 100 * time.Millisecond
	s := newServer(t)
	var asked, listed atomic.Int64
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		name, weights := strings.CutPrefix(what, "other ")
		switch {
		case weights && asked.Add(1)%4 == 1:
			s.begin(w, r, s.files[name], 300_000)
		case what == "api" && listed.Add(1) == 1:
			_, _ = io.WriteString(w, `{"sha": `)
		default:
			return false
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	c := s.client()
	c.silence = silence
	checkpoint := open(t, c)
	if err := s.readAll(checkpoint, 2); err != nil {
		t.Fatal(err)
	}
	if listed.Load() < 2 || !slices.ContainsFunc(s.requests("other"), func(l string) bool { return strings.Contains(l, "bytes=300000-") }) {
		t.Error("no request resumes after silence")
	}

	s = newServer(t)
	c = s.client()
	c.silence = silence
	checkpoint = open(t, c)
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		if name, ok := strings.CutPrefix(what, "other "); ok {
			s.begin(w, r, s.files[name], 0)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		return false
	}
	if err := s.readAll(checkpoint, 1); err == nil || !strings.HasPrefix(err.Error(), model) || !strings.Contains(err.Error(),
		"sent nothing for 100ms in the middle of a response (6 attempts)") {
		t.Errorf("got %v", err)
	}
}

func TestNoProgress(t *testing.T) {
	s := newServer(t)
	checkpoint := open(t, s.client())
	s.faults = func(http.ResponseWriter, *http.Request, string) bool { panic(http.ErrAbortHandler) }
	err := s.readAll(checkpoint, 1)
	if err == nil || !strings.Contains(err.Error(), "6 attempts") || !strings.HasPrefix(err.Error(), model) {
		t.Errorf("got %v", err)
	}
	waits := slices.Sorted(slices.Values(s.waits())) // of a chunk and perhaps the one that follows it
	if len(waits) < 5 || waits[0] != 500*time.Millisecond || waits[len(waits)-1] != 8*time.Second {
		t.Errorf("got waits %v", waits)
	}
}

// TestExpiredAddress checks that a rejected URL of the other host is requested anew from the hub.
func TestExpiredAddress(t *testing.T) {
	s := newServer(t)
	checkpoint := open(t, s.client())
	var rejected atomic.Int64
	s.faults = func(w http.ResponseWriter, _ *http.Request, what string) bool {
		if strings.HasPrefix(what, "other") && rejected.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	if err := s.readAll(checkpoint, 1); err != nil {
		t.Fatal(err)
	}
	if got := s.requests("hub /some/model/resolve/" + commit + "/model-"); len(got) < 3 || len(got) > 4 { // two chunks may notice at once
		t.Errorf("got requests to the hub %q", got)
	}
}

func TestToken(t *testing.T) {
	s := newServer(t)
	s.token = "hf_secret"
	c := s.client()
	if _, err := c.Open(context.Background(), model); err == nil || !strings.Contains(err.Error(), "accept the model's conditions") ||
		!errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), model+": ") {
		t.Errorf("got %v", err)
	}
	c.Token = s.token
	if err := s.readAll(open(t, c), 2); err != nil { // the other host fails the test if it receives the token
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	checkpoint, err := s.client().Open(ctx, model)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.readAll(checkpoint, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	for source, want := range map[string]Repository{
		"hf://a/b":                                 {"a", "b", "main", ""},
		"hf://Qwen/Qwen2.5-0.5B":                   {"Qwen", "Qwen2.5-0.5B", "main", ""},
		"hf://a/b@v1.0":                            {"a", "b", "v1.0", ""},
		"hf://a/b@refs/pr/7":                       {"a", "b", "refs/pr/7", ""},
		"hf://a/b/m.gguf":                          {"a", "b", "main", "m.gguf"},
		"hf://a/b/M.GGUF":                          {"a", "b", "main", "M.GGUF"},
		"hf://a/b@v1/x/m.gguf":                     {"a", "b", "v1", "x/m.gguf"},
		"hf://a/b@refs/pr/7/m-00001-of-00002.gguf": {"a", "b", "refs/pr/7", "m-00001-of-00002.gguf"},
		"hf://a/b@größe-v1+x_2":                    {"a", "b", "größe-v1+x_2", ""},
	} {
		got, err := Parse(source)
		if err != nil || got != want {
			t.Errorf("%s: got %v (%v)", source, got, err)
		}
		if got.String() != source {
			t.Errorf("String of %s: got %s", source, got)
		}
	}
	for _, source := range []string{"a/b", "hf://", "hf://a", "hf://a/", "hf:///b", "hf://a/b/c", "hf://a/b@", "hf://a/..", "hf://a/b@../x",
		"hf://a/b@x y", "hf://a b/c", "hf://a--b/c", "hf://.a/b", "HF://a/b", "hf://a/b@/x", "hf://a/b@x?y",
		"hf://a/b@x\ny", "hf://a/b@x\r", "hf://a/b@\x00", "hf://a/b@\u0085", "hf://a/b@\u202e", "hf://a/b@x\xff", "hf://a/b@x%0a", "hf://a/b@x:y",
		"hf://a/b@x//y", "hf://a/b@x/", "hf://a/b@x/.y", "hf://a/b@x.lock", "hf://a/b@x.", "hf://a/b@" + strings.Repeat("x", 256),
		"hf://a/b\n", "hf://a\n/b", "hf://a/b\n@main", "hf://a/b/../m.gguf", "hf://a/b//m.gguf", "hf://a/b/m\n.gguf", "hf://a/b@/m.gguf",
		"hf://a/b/m.safetensors"} {
		if got, err := Parse(source); err == nil {
			t.Errorf("%q: got %v, want an error", source, got)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"HF_HOME": home}
	get := func(key string) string { return environment[key] }
	c, err := FromEnvironment(get)
	if err != nil || c.Endpoint != "https://huggingface.co" || c.Token != "from-file" || c.Cache != filepath.Join(home, "hub") {
		t.Errorf("got %+v (%v)", c, err)
	}
	if err := os.WriteFile(filepath.Join(home, "token"), bytes.Repeat([]byte("x"), maxToken+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FromEnvironment(get); err == nil || !strings.Contains(err.Error(), "the hub's token: ") || !strings.Contains(err.Error(),
		"limit of 4 KiB: correct or remove the file") {
		t.Errorf("token file too large: got %v", err)
	}
	environment["HF_TOKEN"], environment["HF_ENDPOINT"], environment["HF_HUB_CACHE"] = " t ", "http://localhost:1/", "/c"
	c, err = FromEnvironment(get)
	if err != nil || c.Endpoint != "http://localhost:1" || c.Token != "t" || c.Cache != "/c" {
		t.Errorf("got %+v (%v)", c, err)
	}
	environment["HF_TOKEN"] = "hf_a\nhf_b"
	if _, err = FromEnvironment(get); err == nil || !strings.Contains(err.Error(), "HF_TOKEN: the token contains a line break") ||
		strings.Contains(err.Error(), "hf_") {
		t.Errorf("token of two lines: got %v", err)
	}
	environment["HF_TOKEN"], environment["HF_ENDPOINT"] = "t", "localhost"
	if _, err = FromEnvironment(get); err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") {
		t.Errorf("got %v", err)
	}
	delete(environment, "HF_HOME")
	if err := os.Remove(filepath.Join(home, "token")); err != nil {
		t.Fatal(err)
	}
	environment["XDG_CACHE_HOME"], environment["HF_ENDPOINT"] = home, ""
	delete(environment, "HF_HUB_CACHE")
	if c, err = FromEnvironment(get); err != nil || c.Cache != filepath.Join(home, "huggingface", "hub") {
		t.Errorf("got %+v (%v)", c, err)
	}
}
