// Package storetest is an object store in memory for tests: what package store uses of the API of Amazon S3, with
// conditions (If-Match, If-None-Match) and multipart uploads. It does not check signatures.
package storetest

import (
	"bufio"
	"bytes"
	"crypto/md5" //nolint:gosec // S3 names versions of objects by it
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Bucket is the name of the only bucket.
const Bucket = "weights"

// A Server is a store.
type Server struct {
	*httptest.Server
	Private bool             // requests need credentials
	Google  *httptest.Server // the same objects, as Google Cloud Storage serves them: see google

	// Fault handles a request and returns true, or returns false. It runs before the store's own handling.
	Fault func(w http.ResponseWriter, r *http.Request) bool
	// Lose reports whether the store handles a request and its answer is lost. nil: none is.
	Lose func(r *http.Request) bool

	lock    sync.Mutex
	objects map[string][]byte
	etags   map[string]string      // of the objects
	meta    map[string]http.Header // of the objects: their own metadata
	uploads map[string]*upload
	log     []string
	count   int
}

// An upload is a multipart upload.
type upload struct {
	key   string
	meta  http.Header
	parts map[int][]byte
}

// New returns a store, and points the variables of the environment at it, without credentials.
func New(t *testing.T) *Server {
	s := &Server{objects: map[string][]byte{}, etags: map[string]string{}, meta: map[string]http.Header{}, uploads: map[string]*upload{}}
	s.Server = httptest.NewServer(s)
	s.Google = httptest.NewServer(http.HandlerFunc(s.google))
	t.Cleanup(func() { s.Close(); s.Google.Close() })
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": s.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "",
		"AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
		"AWS_EC2_METADATA_DISABLED": "true", "STORAGE_EMULATOR_HOST": s.Google.URL} {
		t.Setenv(name, value)
	}
	return s
}

// Put stores an object.
func (s *Server) Put(key string, data []byte) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.objects[key], s.etags[key], s.meta[key] = bytes.Clone(data), ETag(data), nil
}

// Objects returns a copy of all objects.
func (s *Server) Objects() map[string][]byte {
	s.lock.Lock()
	defer s.lock.Unlock()
	return maps.Clone(s.objects)
}

// Uploads returns the number of multipart uploads that are neither completed nor aborted.
func (s *Server) Uploads() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.uploads)
}

// Requests returns the method, path and range of each request so far.
func (s *Server) Requests() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.log)
}

// ETag returns the version of an object with the given content.
func ETag(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // see above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	s.log = append(s.log, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	s.lock.Unlock()
	if s.Fault != nil && s.Fault(w, r) {
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := payload(r)
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.Lose != nil && s.Lose(r) {
		w = httptest.NewRecorder()
		defer func() { panic(http.ErrAbortHandler) }()
	}
	query := r.URL.Query()
	switch {
	case err != nil:
		Fail(w, http.StatusBadRequest, "IncompleteBody")
	case s.Private && r.Header.Get("Authorization") == "":
		Fail(w, http.StatusForbidden, "AccessDenied")
	case bucket != Bucket:
		Fail(w, http.StatusNotFound, "NoSuchBucket")
	case query.Has("uploads") && r.Method == http.MethodGet:
		s.listUploads(w, query.Get("prefix"))
	case key == "":
		s.list(w, query.Get("prefix"), max(query.Get("continuation-token"), query.Get("start-after")))
	case query.Has("uploads"):
		s.count++
		id := strconv.Itoa(s.count)
		s.uploads[id] = &upload{key, own(r.Header), map[int][]byte{}}
		answer(w, struct {
			XMLName     xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key string
			ID          string `xml:"UploadId"`
		}{Bucket: bucket, Key: key, ID: id})
	case query.Has("uploadId"):
		s.part(w, r, query.Get("uploadId"), query.Get("partNumber"), key, body)
	case r.Method == http.MethodPut:
		s.put(w, r, key, body, own(r.Header))
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.get(w, r, key)
	}
}

// google serves requests as Google Cloud Storage does: it knows the metadata and the condition of uploads by other names,
// rejects requests with names of both, and takes no parts here.
func (s *Server) google(w http.ResponseWriter, r *http.Request) {
	for key := range r.Header {
		if strings.HasPrefix(key, "X-Amz-") || r.Method == http.MethodPut && key == "If-None-Match" {
			Fail(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
	}
	if r.URL.Query().Has("uploads") && r.Method == http.MethodPost {
		Fail(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	for key, values := range r.Header {
		if name, ok := strings.CutPrefix(key, "X-Goog-Meta-"); ok {
			r.Header["X-Amz-Meta-"+name] = values
		}
	}
	switch r.Header.Get("X-Goog-If-Generation-Match") {
	case "":
	case "0":
		r.Header.Set("If-None-Match", "*")
	default: // generations are not kept here
		r.Header.Set("If-Match", "none")
	}
	s.ServeHTTP(renamed{w}, r)
}

// renamed is a response whose metadata have the names of Google Cloud Storage.
type renamed struct{ http.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (r renamed) WriteHeader(status int) {
	for key, values := range maps.Clone(r.Header()) {
		if name, ok := strings.CutPrefix(key, "X-Amz-Meta-"); ok {
			r.Header()["X-Goog-Meta-"+name] = values
			r.Header().Del(key)
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

// get serves an object, with conditions and ranges.
func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) {
	data, ok := s.objects[key]
	switch want := r.Header.Get("If-Match"); {
	case !ok:
		Fail(w, http.StatusNotFound, "NoSuchKey")
		return
	case want != "" && want != s.etags[key]:
		Fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	maps.Copy(w.Header(), s.meta[key])
	w.Header().Set("ETag", s.etags[key])
	http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(data))
}

// put stores an object unless its condition fails.
func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, data []byte, meta http.Header) bool {
	if _, exists := s.objects[key]; exists && r.Header.Get("If-None-Match") == "*" || r.Header.Get("If-Match") != "" {
		Fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return false
	}
	s.objects[key], s.etags[key], s.meta[key] = data, ETag(data), meta
	w.Header().Set("ETag", s.etags[key])
	return true
}

// part serves requests about a multipart upload.
func (s *Server) part(w http.ResponseWriter, r *http.Request, id, number, key string, body []byte) {
	up := s.uploads[id]
	if up == nil || up.key != key {
		Fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, _ := strconv.Atoi(number)
		up.parts[n] = body
		w.Header().Set("ETag", ETag(body))
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var data []byte
		for _, n := range slices.Sorted(maps.Keys(up.parts)) {
			data = append(data, up.parts[n]...)
		}
		if s.put(w, r, key, data, up.meta) {
			delete(s.uploads, id)
			answer(w, struct {
				XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
				Bucket, Key, ETag string
			}{Bucket: Bucket, Key: key, ETag: s.etags[key]})
		}
	default:
		Fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

// own returns the headers of a request that are the object's own metadata.
func own(h http.Header) http.Header {
	h = h.Clone()
	maps.DeleteFunc(h, func(key string, _ []string) bool { return !strings.HasPrefix(key, "X-Amz-Meta-") })
	return h
}

// listUploads serves the multipart uploads of keys with a prefix.
func (s *Server) listUploads(w http.ResponseWriter, prefix string) {
	type row struct {
		Key string
		ID  string `xml:"UploadId"`
	}
	result := struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []row
	}{}
	for id, up := range s.uploads {
		if strings.HasPrefix(up.key, prefix) {
			result.Upload = append(result.Upload, row{up.key, id})
		}
	}
	answer(w, result)
}

// page is the number of objects in a response: few, so that tests need several.
const page = 3

type content struct {
	Key, ETag, LastModified string
	Size                    int
}

// list serves the objects with a prefix whose keys follow a token.
func (s *Server) list(w http.ResponseWriter, prefix, token string) {
	result := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}{Name: Bucket, Prefix: prefix}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= token {
			continue
		}
		if result.IsTruncated = len(result.Contents) == page; result.IsTruncated {
			result.NextContinuationToken = result.Contents[page-1].Key
			break
		}
		result.Contents = append(result.Contents, content{key, s.etags[key], "2026-01-01T00:00:00.000Z", len(s.objects[key])})
	}
	answer(w, result)
}

func answer(w http.ResponseWriter, value any) {
	text, err := xml.Marshal(value)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = w.Write(text) // the client may be gone
}

// Fail responds with an error as S3 does.
func Fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code) // the client may be gone
}

// Faults returns a Server.Fault that counts requests, and of each every ones answers the first as a busy store does and ends the
// connection of the second.
func Faults(requests *atomic.Int64, every int64) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		switch requests.Add(1) % every {
		case 1:
			Fail(w, http.StatusServiceUnavailable, "SlowDown")
			return true
		case 2:
			panic(http.ErrAbortHandler)
		}
		return false
	}
}

// payload returns the body of a request, without the signatures of its chunks.
func payload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var data []byte
	for b := bufio.NewReader(r.Body); ; {
		line, err := b.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil || n == 0 {
			return data, err
		}
		chunk := make([]byte, n+2) // and the end of its line
		if _, err := io.ReadFull(b, chunk); err != nil {
			return nil, err
		}
		data = append(data, chunk[:n]...)
	}
}
