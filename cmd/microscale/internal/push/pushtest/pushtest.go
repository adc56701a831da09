// Package pushtest is a hub in memory for tests of uploads: repositories, the batch API of Git LFS with parts, and
// commits, as huggingface_hub uses them.
package pushtest

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // Git names content by it
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Token may write.
const Token = "hf_writes"

// Sizes of the hub: files of Large bytes or more are objects of LFS, those of more than Part bytes are sent in parts.
const (
	Large = 1 << 10
	Part  = 256 << 10
)

// A Repository is a model.
type Repository struct {
	Private bool
	Files   map[string][]byte // of the last commit
	Subject string            // of the last commit
	Commits int
}

// A Server is a hub.
type Server struct {
	*httptest.Server
	Fault func(w http.ResponseWriter, r *http.Request) bool // handles a request and returns true, or returns false
	Lose  func(r *http.Request) bool                        // reports whether the answer to a request is lost; nil: none is

	lock         sync.Mutex
	storage      *httptest.Server // another host, as that of the real hub
	repositories map[string]*Repository
	objects      map[string][]byte // by SHA-256
	parts        map[string][]byte // by object and number
	verified     map[string]bool
	current      string // the only object with an address that is not expired
	puts         int
}

// New returns a hub, and points the variables of the environment at it.
func New(t *testing.T) *Server {
	s := &Server{repositories: map[string]*Repository{}, objects: map[string][]byte{}, parts: map[string][]byte{}, verified: map[string]bool{}}
	s.Server = httptest.NewServer(s.locked(s.hub))
	s.storage = httptest.NewServer(s.locked(s.store))
	t.Cleanup(func() { s.Close(); s.storage.Close() })
	for name, value := range map[string]string{"HF_ENDPOINT": s.URL, "HF_TOKEN": Token, "HF_HOME": t.TempDir(), "HF_HUB_CACHE": ""} {
		t.Setenv(name, value)
	}
	return s
}

// Repository returns a copy of a repository, or nil.
func (s *Server) Repository(name string) *Repository {
	s.lock.Lock()
	defer s.lock.Unlock()
	r := s.repositories[name]
	if r == nil {
		return nil
	}
	return &Repository{r.Private, maps.Clone(r.Files), r.Subject, r.Commits}
}

// Puts returns the number of objects and parts that were received.
func (s *Server) Puts() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.puts
}

// locked returns a handler that reads the body, and then calls f with it, alone.
func (s *Server) locked(f func(w http.ResponseWriter, r *http.Request, body []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Fault != nil && s.Fault(w, r) {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		if s.Lose != nil && s.Lose(r) {
			f(httptest.NewRecorder(), r, body)
			panic(http.ErrAbortHandler)
		}
		f(w, r, body)
	})
}

// hub serves the API.
func (s *Server) hub(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		fail(w, http.StatusUnauthorized, "Invalid credentials")
		return
	}
	if r.URL.Path == "/api/repos/create" {
		var q struct {
			Name, Organization, Visibility string
			Private                        bool
		}
		if err := json.Unmarshal(body, &q); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		name := q.Organization + "/" + q.Name
		if s.repositories[name] != nil {
			fail(w, http.StatusConflict, "You already created this model repo")
			return
		}
		s.repositories[name] = &Repository{Private: q.Private || q.Visibility == "private", Files: map[string][]byte{}}
		answer(w, map[string]string{"url": s.URL + "/" + name})
		return
	}
	if name, ok := strings.CutSuffix(r.URL.Path, ".git/info/lfs/objects/batch"); ok && s.repositories[name[1:]] != nil {
		s.batch(w, body)
		return
	}
	if oid, ok := strings.CutPrefix(r.URL.Path, "/verify/"); ok {
		s.verified[oid] = true
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/models/"), "/")
	if len(parts) < 2 || s.repositories[parts[0]+"/"+parts[1]] == nil {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		fail(w, http.StatusNotFound, "Repository not found")
		return
	}
	repository := s.repositories[parts[0]+"/"+parts[1]]
	switch {
	case len(parts) == 2:
		answer(w, map[string]any{"private": repository.Private})
	case parts[2] == "preupload":
		s.preupload(w, body)
	case parts[2] == "revision" && parts[3] == "main":
		answer(w, map[string]any{"sha": repository.sha(), "siblings": repository.siblings()})
	case parts[2] == "commit" && parts[3] == "main":
		s.commit(w, parts[0]+"/"+parts[1], body)
	default:
		fail(w, http.StatusNotFound, "Invalid rev id: "+path.Base(r.URL.Path))
	}
}

func (s *Server) preupload(w http.ResponseWriter, body []byte) {
	var q struct {
		Files []struct {
			Path, Sample string
			Size         int64
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	var files []any
	for _, f := range q.Files {
		sample, err := base64.StdEncoding.DecodeString(f.Sample)
		if err != nil || int64(len(sample)) != min(f.Size, 512) {
			fail(w, http.StatusBadRequest, "invalid sample of "+f.Path)
			return
		}
		mode := "regular"
		if f.Size >= Large || f.Size == 0 { // as a .gitattributes file may say
			mode = "lfs"
		}
		files = append(files, map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": false, "oid": nil})
	}
	answer(w, map[string]any{"files": files})
}

// batch tells where to send objects.
func (s *Server) batch(w http.ResponseWriter, body []byte) {
	var q struct {
		Operation string
		Objects   []struct {
			OID  string
			Size int64
		}
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Operation != "upload" {
		fail(w, http.StatusBadRequest, "invalid batch")
		return
	}
	objects := []any{}
	for _, o := range q.Objects {
		s.current = o.OID
		row := map[string]any{"oid": o.OID, "size": o.Size}
		if !s.verified[o.OID] {
			up := map[string]any{"href": s.storage.URL + "/object/" + o.OID, "header": map[string]string{}}
			if o.Size > Part {
				header := map[string]string{"chunk_size": strconv.Itoa(Part)}
				for n := int64(1); (n-1)*Part < o.Size; n++ {
					header[strconv.FormatInt(n, 10)] = fmt.Sprintf("%s/part/%s/%d", s.storage.URL, o.OID, n)
				}
				up = map[string]any{"href": s.storage.URL + "/complete/" + o.OID, "header": header}
			}
			verify := map[string]any{"href": s.URL + "/verify/" + o.OID, "header": map[string]string{}}
			row["actions"] = map[string]any{"upload": up, "verify": verify}
		}
		objects = append(objects, row)
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	answer(w, map[string]any{"transfer": "basic", "objects": objects})
}

// store serves the other host.
func (s *Server) store(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Header.Get("Authorization") != "" {
		fail(w, http.StatusBadRequest, "got the token")
		return
	}
	kind, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	switch {
	case !strings.HasPrefix(rest, s.current):
		fail(w, http.StatusForbidden, "the address expired")
	case kind == "object" && r.Method == http.MethodPut:
		s.puts++
		s.keep(w, rest, body)
	case kind == "part" && r.Method == http.MethodPut:
		s.puts++
		s.parts[rest] = body
		w.Header().Set("ETag", `"`+path.Base(rest)+`"`)
	case kind == "complete" && r.Method == http.MethodPost:
		var q struct {
			OID   string
			Parts []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := json.Unmarshal(body, &q); err != nil || q.OID != rest {
			fail(w, http.StatusBadRequest, "invalid completion")
			return
		}
		var data []byte
		for i, p := range q.Parts {
			if p.PartNumber != i+1 || p.ETag != fmt.Sprintf(`"%d"`, i+1) {
				fail(w, http.StatusBadRequest, "invalid part")
				return
			}
			data = append(data, s.parts[fmt.Sprintf("%s/%d", rest, i+1)]...)
		}
		s.keep(w, rest, data)
	default:
		fail(w, http.StatusNotFound, "no such object")
	}
}

// keep stores an object with the right hash.
func (s *Server) keep(w http.ResponseWriter, oid string, data []byte) {
	if len(data) == 0 {
		fail(w, http.StatusBadRequest, "there are no empty objects")
		return
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != oid {
		fail(w, http.StatusBadRequest, "the object has another hash")
		return
	}
	s.objects[oid] = data
	answer(w, map[string]string{})
}

// commit sets files of a repository, all of them or none.
func (s *Server) commit(w http.ResponseWriter, name string, body []byte) {
	r := s.repositories[name]
	files, subject := maps.Clone(r.Files), ""
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		var l struct {
			Key   string
			Value struct{ Summary, ParentCommit, Path, Content, Encoding, Algo, OID string }
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		switch v := l.Value; l.Key {
		case "header":
			subject = v.Summary
			if v.ParentCommit != "" && v.ParentCommit != r.sha() {
				fail(w, http.StatusPreconditionFailed, "A commit has happened since. Please refresh and try again.")
				return
			}
		case "deletedFile":
			if _, ok := files[v.Path]; !ok {
				fail(w, http.StatusBadRequest, "no such file: "+v.Path)
				return
			}
			delete(files, v.Path)
		case "file":
			data, err := base64.StdEncoding.DecodeString(v.Content)
			if err != nil || v.Encoding != "base64" || len(data) >= Large {
				fail(w, http.StatusBadRequest, "invalid content of "+v.Path)
				return
			}
			files[v.Path] = data
		case "lfsFile":
			data, ok := s.objects[v.OID]
			if !ok || !s.verified[v.OID] || v.Algo != "sha256" {
				fail(w, http.StatusBadRequest, "no such object: "+v.Path)
				return
			}
			files[v.Path] = data
		default:
			fail(w, http.StatusBadRequest, "unknown key "+l.Key)
			return
		}
	}
	r.Files, r.Subject, r.Commits = files, subject, r.Commits+1
	answer(w, map[string]string{"commitOid": r.sha(), "commitUrl": s.URL + "/" + name + "/commit/" + r.sha()})
}

// sha returns the name of the last commit.
func (r *Repository) sha() string { return fmt.Sprintf("%040x", r.Commits) }

// siblings returns the files with their hashes: of objects of LFS, that of a pointer is not the hash of the content.
func (r *Repository) siblings() []any {
	rows := []any{}
	for name, data := range r.Files {
		row := map[string]any{"rfilename": name, "size": len(data)}
		if len(data) >= Large {
			row["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(data)), "size": len(data)}
		} else {
			row["blobId"] = fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))) //nolint:gosec // of Git
		}
		rows = append(rows, row)
	}
	return rows
}

func answer(w http.ResponseWriter, document any) {
	if err := json.NewEncoder(w).Encode(document); err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
}

func fail(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	answer(w, map[string]string{"error": message})
}
