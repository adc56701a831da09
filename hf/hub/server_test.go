package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/hf/sample"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// A server is a hub with one model, and the other host to which it redirects requests for large files,
// like the real one.
type server struct {
	t      *testing.T
	hub    *httptest.Server
	other  *httptest.Server
	lock   sync.Mutex
	files  map[string][]byte
	token  string                                                         // that the model requires; "" for a public one
	faults func(w http.ResponseWriter, r *http.Request, name string) bool // handles a request and returns true, or returns false
	log    []string                                                       // host, path and range of each request
	waited []time.Duration
}

// made returns the files of the model, created once.
var made = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := sample.Write(context.Background(), dir); err != nil {
		return nil, err
	}
	files := map[string][]byte{"pytorch_model.bin": []byte("PK"), ".gitattributes": []byte("x"), "onnx/model.safetensors": []byte("y"),
		"1_Pooling/config.json": []byte("{}")}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, err
})

func newServer(t *testing.T) *server {
	t.Helper()
	files, err := made()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, files: files}
	s.hub, s.other = httptest.NewServer(http.HandlerFunc(s.serveHub)), httptest.NewServer(http.HandlerFunc(s.serveOther))
	t.Cleanup(func() { s.hub.Close(); s.other.Close() })
	return s
}

// client returns a Client that records its waits and does not wait, with maximum jitter.
func (s *server) client() *Client {
	return &Client{Endpoint: s.hub.URL, Cache: s.t.TempDir(), random: func() float64 { return 1 },
		wait: func(ctx context.Context, d time.Duration) error {
			s.lock.Lock()
			defer s.lock.Unlock()
			s.waited = append(s.waited, d)
			return ctx.Err()
		}}
}

func (s *server) note(host string, r *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.log = append(s.log, strings.TrimSpace(host+" "+r.URL.Path+" "+r.Header.Get("Range")))
}

// requests returns the requests with a prefix.
func (s *server) requests(prefix string) []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(s.log), func(l string) bool { return !strings.HasPrefix(l, prefix) })
}

// waits returns a copy of the recorded waits. Prefetching may still add some.
func (s *server) waits() []time.Duration {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.waited)
}

func large(name string) bool { return strings.HasSuffix(name, ".safetensors") }

func (s *server) serveHub(w http.ResponseWriter, r *http.Request) {
	s.note("hub", r)
	if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/api/models/some/model/revision/main" {
		if s.faults == nil || !s.faults(w, r, "api") {
			s.serveList(w)
		}
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/some/model/resolve/"+commit+"/")
	content, known := s.files[name]
	switch {
	case !ok:
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		w.WriteHeader(http.StatusNotFound)
	case s.faults != nil && s.faults(w, r, "hub "+name):
	case !known:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		w.WriteHeader(http.StatusNotFound)
	case large(name):
		w.Header().Set("X-Repo-Commit", commit)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(content)))
		w.Header().Set("X-Linked-Etag", `"`+sum256(content)+`"`)
		w.Header().Set("Location", s.other.URL+"/blobs/"+name+"?signature=1")
		w.WriteHeader(http.StatusFound)
	default:
		w.Header().Set("ETag", `"`+gitSum(content)+`"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(content)))
	}
}

func (s *server) serveList(w http.ResponseWriter) {
	l := map[string]any{"sha": commit}
	var files []any
	for name, content := range s.files {
		f := map[string]any{"rfilename": name, "size": len(content), "blobId": gitSum(content)}
		if large(name) {
			f["lfs"] = map[string]any{"sha256": sum256(content), "size": len(content), "pointerSize": 135}
		}
		files = append(files, f)
	}
	l["siblings"] = files
	if err := json.NewEncoder(w).Encode(l); err != nil {
		s.t.Error(err)
	}
}

func (s *server) serveOther(w http.ResponseWriter, r *http.Request) {
	s.note("other", r)
	if r.Header.Get("Authorization") != "" {
		s.t.Error("the other host received the token")
	}
	name := strings.TrimPrefix(r.URL.Path, "/blobs/")
	if s.faults != nil && s.faults(w, r, "other "+name) {
		return
	}
	w.Header().Set("ETag", `"stored"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(s.files[name])))
}

// partly sends the first n bytes of a range, then ends the connection.
func (s *server) partly(w http.ResponseWriter, r *http.Request, content []byte, n int) {
	s.begin(w, r, content, n)
	panic(http.ErrAbortHandler)
}

// begin sends the first n bytes of a range.
func (s *server) begin(w http.ResponseWriter, r *http.Request, content []byte, n int) {
	var from, to int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
		s.t.Error(err)
	}
	to = min(to, len(content)-1)
	w.Header().Set("ETag", `"stored"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(content)))
	w.Header().Set("Content-Length", strconv.Itoa(to-from+1))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(content[from:min(from+n, to+1)])
}

func sum256(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func gitSum(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
}
