package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/ranges"
)

// TestInvalidResponses checks the errors for a hub whose responses contradict each other or are invalid,
// and for those that deny access.
func TestInvalidResponses(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	list := func(edit func(text string) string) func(*server, http.ResponseWriter, *http.Request, string) bool {
		return func(s *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what != "api" {
				return false
			}
			r := recorder{header: http.Header{}}
			s.serveList(&r)
			_, _ = io.WriteString(w, edit(r.String()))
			return true
		}
	}
	replace := func(old, other string) func(*server, http.ResponseWriter, *http.Request, string) bool {
		return list(func(text string) string {
			if !strings.Contains(text, old) {
				t.Errorf("the listing has no %s", old)
			}
			return strings.Replace(text, old, other, 1)
		})
	}
	status := func(path string, code int, reason string) func(*server, http.ResponseWriter, *http.Request, string) bool {
		return func(_ *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == path {
				w.Header().Set("X-Error-Code", reason)
				w.WriteHeader(code)
			}
			return what == path
		}
	}
	headers := func(path string, set map[string]string) func(*server, http.ResponseWriter, *http.Request, string) bool {
		return func(_ *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what != path {
				return false
			}
			for key, value := range set {
				w.Header().Set(key, value)
			}
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, 1<<20))
			return true
		}
	}
	missing := []string{"no such model", "renamed", "no such revision", "no such file"}
	forbidden := []string{"no such model", "gated"}
	for name, tc := range map[string]struct {
		fault func(*server, http.ResponseWriter, *http.Request, string) bool
		want  string
	}{
		"no such model":     {status("api", http.StatusUnauthorized, ""), "does not know the model, or it is private"},
		"renamed":           {status("api", http.StatusNotFound, "RepoNotFound"), "the hub does not know it"},
		"no such revision":  {status("api", http.StatusNotFound, "RevisionNotFound"), "no such revision"},
		"gated":             {status("hub "+shard, http.StatusForbidden, "GatedRepo"), "accept the model's conditions"},
		"no such file":      {status("hub config.json", http.StatusNotFound, "EntryNotFound"), "config.json: the hub has no such file"},
		"teapot":            {status("api", http.StatusTeapot, ""), "418"},
		"not JSON":          {list(func(string) string { return "<html>" }), "does not have the hub's API"},
		"no commit":         {replace(commit, "main"), "the response has no commit"},
		"name leads out":    {replace(`"README.md"`, `"../README.md"`), "could lead out of its folder, or has control characters"},
		"name of two lines": {replace(`"README.md"`, `"README\n.md"`), "has control characters"},
		"absolute name":     {replace(`"README.md"`, `"/etc/x"`), "could lead out of its folder, or has control characters"},
		"no hash":           {replace(gitSum([]byte("{}")), "x"), "no valid hash of 1_Pooling/config.json"},
		"size of LFS":       {replace(`"pointerSize":135,"sha256"`, `"size":1,"sha256x"`), "no valid hash of"},
		"smaller":           {headers("other "+shard, map[string]string{"Content-Range": "bytes 0-1048575/1048576"}), "the server has 1048576"},
		"another place": {headers("other "+shard, map[string]string{"Content-Range": "bytes 7-1048582/99999999"}),
			`requested byte 0, got "bytes 7-1048582/99999999"`},
		"linked size":    {headers("hub "+shard, map[string]string{"X-Linked-Size": "5", "Content-Range": "bytes 0-9/*"}), "the server has 5"},
		"linked hash":    {headers("hub "+shard, map[string]string{"X-Linked-Etag": `"abc"`}), `got a file of hash "abc"`},
		"another commit": {headers("hub "+shard, map[string]string{"X-Repo-Commit": "abc"}), `got the file of commit "abc"`},
		"redirected forever": {func(_ *server, w http.ResponseWriter, r *http.Request, _ string) bool {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
			return true
		}, "more than 10 redirects"},
		"no ranges": {func(s *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "other "+shard {
				_, _ = w.Write(s.files[shard])
			}
			return what == "other "+shard
		}, "does not support range requests"},
		"a small file of other bytes": {func(s *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "hub config.json" {
				_, _ = w.Write(bytes.Repeat([]byte(" "), len(s.files["config.json"])))
			}
			return what == "hub config.json"
		}, "want %s: it was damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool { return tc.fault(s, w, r, what) }
			want := strings.ReplaceAll(tc.want, "%s", gitSum(s.files["config.json"]))
			_, err := s.client().Open(context.Background(), model)
			for cause, is := range map[error]bool{fs.ErrNotExist: slices.Contains(missing, name), fs.ErrPermission: slices.Contains(forbidden,
				name)} {
				if errors.Is(err, cause) != is {
					t.Errorf("errors.Is(err, %v): got %t, want %t", cause, !is, is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), model) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

// A recorder is a ResponseWriter that records the body.
type recorder struct {
	bytes.Buffer
	header http.Header
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}

// TestDamagedWeights checks that the hash of the whole file is compared with the hub's once all chunks
// were read, in the order of any number of threads.
func TestDamagedWeights(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	for _, threads := range []int{1, 3} {
		s := newServer(t)
		checkpoint := open(t, s.client())
		s.files = maps.Clone(s.files) // readAll expects the content that is served from here on
		s.files[shard] = bytes.Clone(s.files[shard])
		s.files[shard][9<<20] ^= 1
		if err := s.readAll(checkpoint, threads); err == nil || !strings.Contains(err.Error(), "it was damaged in transfer") {
			t.Errorf("%d threads: got %v", threads, err)
		}
	}
}

// TestDamagedRepeat checks that a chunk that is fetched again must have the same bytes, also after the
// whole file was compared with the hub's hash.
func TestDamagedRepeat(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	for _, at := range []int{ranges.FirstChunk - 1, ranges.FirstChunk + ranges.LaterChunk} { // of chunks 0 and 2
		s := newServer(t)
		content := s.files[shard]
		f := file{Name: shard, Size: int64(len(content))}
		f.LFS = &lfs{SHA256: sum256(content), Size: f.Size}
		r := s.client().remote(context.Background(), Repository{"some", "model", "main", ""}, commit, f, ranges.NewChunks())
		readAll := func() error {
			r.Chunks = ranges.NewChunks() // as if other files had replaced all chunks
			_, err := io.Copy(io.Discard, io.NewSectionReader(r, 0, f.Size))
			return err
		}
		for range 2 {
			if err := readAll(); err != nil || r.Changed() != nil {
				t.Fatal(err, r.Changed())
			}
		}
		s.files = maps.Clone(s.files)
		s.files[shard] = bytes.Clone(content)
		s.files[shard][at] ^= 1
		from, to := ranges.ChunkRange(ranges.ChunkOf(int64(at)), f.Size)
		want := fmt.Sprintf("%s: %s: bytes %d to %d differ from an earlier read", model, shard, from, to-1)
		for what, err := range map[string]error{"reading": readAll(), "Changed": r.Changed()} {
			if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, want %s", what, err, want)
			}
		}
	}
}

// TestGap checks that chunks do not wait for one that is not read, and that the content is compared after
// a later read of all of them.
func TestGap(t *testing.T) {
	const count = 12
	f := file{Name: "model.safetensors", Size: ranges.FirstChunk + (count-1)*ranges.LaterChunk, Blob: strings.Repeat("0", 40)}
	r := (&Client{}).remote(context.Background(), Repository{}, commit, f, ranges.NewChunks())
	data := make([]byte, ranges.LaterChunk)
	add := func(i int) error {
		from, to := ranges.ChunkRange(i, f.Size)
		return r.add(i, data[:to-from])
	}
	for _, step := range []struct{ chunk, waiting, summed int }{
		{0, 0, 1}, {3, 1, 1}, {2, 2, 1}, {count - 1, 0, 1}, // the second chunk is not read
		{count - 2, 0, 1}, {0, 0, 1}, {2, 1, 1}, {1, 0, 3},
	} {
		if err := add(step.chunk); err != nil || r.Chunks.Waiting() != step.waiting || r.summed != step.summed {
			t.Fatalf("after chunk %d: got %d waiting and %d hashed, want %d and %d (%v)", step.chunk, r.Chunks.Waiting(), r.summed, step.waiting,
				step.summed, err)
		}
	}
	for i := 3; i < count-1; i++ {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(count - 1); err == nil || !strings.Contains(err.Error(), "it was damaged in transfer") {
		t.Errorf("got %v", err)
	}
}

func TestFileChanges(t *testing.T) {
	s := newServer(t)
	checkpoint := open(t, s.client())
	s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool {
		if strings.HasPrefix(what, "other") {
			w.Header().Set("ETag", `"another"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.files[strings.TrimPrefix(what, "other ")]))
			return true
		}
		return false
	}
	if err := s.readAll(checkpoint, 1); err == nil || !strings.Contains(err.Error(), "changed on the server") {
		t.Errorf("got %v", err)
	}
}

// TestAhead checks that waiting chunks of files whose reading stopped are limited in total, and that such a
// file is still compared after another read.
func TestAhead(t *testing.T) {
	const count, files = 12, 5
	shared := ranges.NewChunks()
	data := make([]byte, ranges.LaterChunk)
	f := file{Name: "model.safetensors", Size: ranges.FirstChunk + (count-1)*ranges.LaterChunk, Blob: strings.Repeat("0", 40)}
	var remotes []*remote
	add := func(r *remote, i int) error {
		from, to := ranges.ChunkRange(i, f.Size)
		err := r.add(i, data[:to-from])
		if shared.Waiting() > ranges.MaxAhead {
			t.Fatalf("got %d waiting chunks", shared.Waiting())
		}
		return err
	}
	for range files {
		r := (&Client{}).remote(context.Background(), Repository{}, commit, f, shared)
		remotes = append(remotes, r)
		for _, i := range []int{0, 2, 3, 5} { // and no more
			if err := add(r, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if shared.Waiting() == 0 {
		t.Error("got no waiting chunk")
	}
	for _, i := range []int{8, 4, 2, 7, 3, 5, 6, 1, 9, 8, 10} { // not quite in order
		if err := add(remotes[0], i); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(remotes[0], count-1); err == nil || !strings.Contains(err.Error(), "it was damaged in transfer") {
		t.Errorf("first file, read to its end: got %v", err)
	}
}
