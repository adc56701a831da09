package hub

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLies: a hub that contradicts itself, or sends something else, is refused.
func TestLies(t *testing.T) {
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
				t.Errorf("the list has no %s", old)
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
	for name, tc := range map[string]struct {
		fault func(*server, http.ResponseWriter, *http.Request, string) bool
		want  string
	}{
		"no such model":     {status("api", http.StatusUnauthorized, ""), "does not know the model, or it is private"},
		"renamed":           {status("api", http.StatusNotFound, "RepoNotFound"), "the hub does not know it"},
		"no such revision":  {status("api", http.StatusNotFound, "RevisionNotFound"), "no such revision"},
		"gated":             {status("hub "+shard, http.StatusForbidden, "GatedRepo"), "accept the model's conditions"},
		"a file is gone":    {status("hub config.json", http.StatusNotFound, "EntryNotFound"), "config.json: the hub has no such file"},
		"teapot":            {status("api", http.StatusTeapot, ""), "418"},
		"not JSON":          {list(func(string) string { return "<html>" }), "does not answer as the hub does"},
		"no commit":         {replace(commit, "main"), "does not name the commit"},
		"name leads out":    {replace(`"README.md"`, `"../README.md"`), "could lead out of its folder or has control characters"},
		"name of two lines": {replace(`"README.md"`, `"README\n.md"`), "has control characters"},
		"absolute name":     {replace(`"README.md"`, `"/etc/x"`), "could lead out of its folder or has control characters"},
		"no hash":           {replace(gitSum([]byte("{}")), "x"), "no hash of 1_Pooling/config.json"},
		"size of LFS":       {replace(`"pointerSize":135,"sha256"`, `"size":1,"sha256x"`), "no hash of"},
		"smaller":           {headers("other "+shard, map[string]string{"Content-Range": "bytes 0-1048575/1048576"}), "and the server has 1048576"},
		"another place":     {headers("other "+shard, map[string]string{"Content-Range": "bytes 7-1048582/99999999"}), `asked for byte 0 and sends "7-1048582"`},
		"linked size":       {headers("hub "+shard, map[string]string{"X-Linked-Size": "5", "Content-Range": "bytes 0-9/*"}), "and the server has 5"},
		"linked hash":       {headers("hub "+shard, map[string]string{"X-Linked-Etag": `"abc"`}), `of hash "abc"`},
		"another commit":    {headers("hub "+shard, map[string]string{"X-Repo-Commit": "abc"}), `of commit "abc"`},
		"redirected forever": {func(_ *server, w http.ResponseWriter, r *http.Request, _ string) bool {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
			return true
		}, "redirected 10 times"},
		"no ranges": {func(s *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "other "+shard {
				_, _ = w.Write(s.files[shard])
			}
			return what == "other "+shard
		}, "whole files only"},
		"a small file of other bytes": {func(s *server, w http.ResponseWriter, _ *http.Request, what string) bool {
			if what == "hub config.json" {
				_, _ = w.Write(bytes.Repeat([]byte(" "), len(s.files["config.json"])))
			}
			return what == "hub config.json"
		}, "the hub lists " + "%s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.faults = func(w http.ResponseWriter, r *http.Request, what string) bool { return tc.fault(s, w, r, what) }
			want := strings.ReplaceAll(tc.want, "%s", gitSum(s.files["config.json"]))
			_, err := s.client().Open(context.Background(), model)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), model) || strings.Contains(err.Error(), "\n") {
				t.Errorf("says %v, want %q in it", err, want)
			}
		})
	}
}

// recorder keeps what is written to it.
type recorder struct {
	bytes.Buffer
	header http.Header
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}

// TestDamagedWeights: bytes that are not those of the hub's hash are found when all
// have been read, whatever the order of threads.
func TestDamagedWeights(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	for _, threads := range []int{1, 3} {
		s := newServer(t)
		checkpoint := open(t, s.client())
		s.files = maps.Clone(s.files) // what is served from here on is what readAll expects
		s.files[shard] = bytes.Clone(s.files[shard])
		s.files[shard][9<<20] ^= 1
		if err := s.readAll(checkpoint, threads); err == nil || !strings.Contains(err.Error(), "it was damaged on its way") {
			t.Errorf("%d threads: says %v", threads, err)
		}
	}
}

// TestDamagedRepeat: a chunk that is fetched again, after the whole file was found
// to be the hub's, must be the same bytes again.
func TestDamagedRepeat(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	for _, at := range []int{firstChunk - 1, firstChunk + laterChunk} { // of chunks 0 and 2
		s := newServer(t)
		content := s.files[shard]
		f := file{Name: shard, Size: int64(len(content))}
		f.LFS = &lfs{SHA256: sum256(content), Size: f.Size}
		r := s.client().remote(context.Background(), Repository{"some", "model", "main"}, commit, f)
		readAll := func() error {
			r.chunks = newChunks() // as if other files had taken the place of all
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
		from, to := chunkRange(chunkOf(int64(at)), f.Size)
		want := fmt.Sprintf("%s: %s: bytes %d to %d differ from those that were read before", model, shard, from, to-1)
		for what, err := range map[string]error{"reading": readAll(), "Changed": r.Changed()} {
			if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s says %v, want %s", what, err, want)
			}
		}
	}
}

// TestGap: chunks do not wait for one that is passed over, and the content is
// compared where another reading brings all of them.
func TestGap(t *testing.T) {
	const count = 12
	f := file{Name: "model.safetensors", Size: firstChunk + (count-1)*laterChunk, Blob: strings.Repeat("0", 40)}
	r := (&Client{}).remote(context.Background(), Repository{}, commit, f)
	data := make([]byte, laterChunk)
	add := func(i int) error {
		from, to := chunkRange(i, f.Size)
		return r.add(i, data[:to-from])
	}
	for _, step := range []struct{ chunk, waiting, summed int }{
		{0, 0, 1}, {3, 1, 1}, {2, 2, 1}, {count - 1, 0, 1}, // the second is passed over
		{count - 2, 0, 1}, {0, 0, 1}, {2, 1, 1}, {1, 0, 3},
	} {
		if err := add(step.chunk); err != nil || len(r.chunks.ahead) != step.waiting || r.summed != step.summed {
			t.Fatalf("after chunk %d %d wait and %d are hashed, want %d and %d (%v)", step.chunk, len(r.chunks.ahead), r.summed, step.waiting, step.summed, err)
		}
	}
	for i := 3; i < count-1; i++ {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(count - 1); err == nil || !strings.Contains(err.Error(), "it was damaged on its way") {
		t.Errorf("says %v", err)
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
		t.Errorf("says %v", err)
	}
}

// TestAhead: files whose reading stopped keep no more chunks, all together, than
// one that is read, and one of them is compared all the same when it is read again.
func TestAhead(t *testing.T) {
	const count, files = 12, 5
	shared := newChunks()
	data := make([]byte, laterChunk)
	f := file{Name: "model.safetensors", Size: firstChunk + (count-1)*laterChunk, Blob: strings.Repeat("0", 40)}
	var remotes []*remote
	add := func(r *remote, i int) error {
		from, to := chunkRange(i, f.Size)
		err := r.add(i, data[:to-from])
		if len(shared.ahead) > mostAhead {
			t.Fatalf("%d chunks wait", len(shared.ahead))
		}
		return err
	}
	for range files {
		r := (&Client{}).remote(context.Background(), Repository{}, commit, f)
		r.chunks = shared
		remotes = append(remotes, r)
		for _, i := range []int{0, 2, 3, 5} { // and no more
			if err := add(r, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(shared.ahead) == 0 {
		t.Error("no chunk waits")
	}
	for _, i := range []int{8, 4, 2, 7, 3, 5, 6, 1, 9, 8, 10} { // not quite in order
		if err := add(remotes[0], i); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(remotes[0], count-1); err == nil || !strings.Contains(err.Error(), "it was damaged on its way") {
		t.Errorf("the first file, read to its end, is not compared: %v", err)
	}
}
