package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/minio/minio-go/v7"
)

// quick is an opener that does not wait between attempts.
func quick() opener {
	return opener{retry: ranges.Retry{Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
}

func TestMain(m *testing.M) {
	minio.DefaultRetryUnit = time.Millisecond // it waits also after the last attempt
	os.Exit(m.Run())
}

// made returns the files of the sample and of a folder in it, created once.
var made = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := sample.Write(context.Background(), dir); err != nil {
		return nil, err
	}
	files := map[string][]byte{"pytorch_model.bin": []byte("PK"), "onnx/model.safetensors": []byte("y"), "1_Pooling/config.json": []byte("{}")}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, err
})

const shard = "model-00002-of-00002.safetensors"

// filled returns a store with the sample in the folder models/a, and its files.
func filled(t *testing.T) (*storetest.Server, map[string][]byte) {
	t.Helper()
	files, err := made()
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.New(t)
	for name, data := range files {
		s.Put("models/a/"+name, data)
	}
	s.Put("models/ab/config.json", []byte("not of the folder"))
	return s, files
}

// same checks that a checkpoint has the bytes of the sample's files.
func same(c *hf.Checkpoint, files map[string][]byte) error {
	if len(c.Shards()) != 2 {
		return fmt.Errorf("got %d shards", len(c.Shards()))
	}
	for _, s := range c.Shards() {
		for _, info := range s.File.Tensors() {
			data := make([]byte, info.Bytes())
			if err := s.File.ReadTensorAt(data, info, 0); err != nil {
				return err
			}
			start := s.File.DataStart() + info.Begin
			if !bytes.Equal(data, files[s.Name][start:start+info.Bytes()]) {
				return fmt.Errorf("%s: %s differs", s.Name, info.Name)
			}
		}
	}
	if !bytes.Equal(c.Config, files[hf.ConfigName]) {
		return errors.New("config.json differs")
	}
	for _, o := range c.Others() {
		if data, err := os.ReadFile(o.Path); err != nil || !bytes.Equal(data, files[o.Name]) {
			return fmt.Errorf("%s differs (%w)", o.Name, err)
		}
	}
	return nil
}

// web serves files as a web server does.
func webServer(t *testing.T, files map[string][]byte, handle func(w http.ResponseWriter, r *http.Request) bool) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[strings.TrimPrefix(r.URL.Path, "/m/")]
		switch {
		case handle != nil && handle(w, r):
		case !ok:
			http.NotFound(w, r)
		default:
			w.Header().Set("ETag", fmt.Sprintf(`"%p"`, &data[0]))
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestOpen reads the sample from each kind of place, and checks that nothing stays behind, and that weights are
// not downloaded to open it.
func TestOpen(t *testing.T) {
	s, files := filled(t)
	t.Setenv("TMPDIR", t.TempDir())
	server := webServer(t, files, nil)
	for _, address := range []string{"s3://weights/models/a", "s3://weights/models/a/", "gs://weights/models/a", server.URL + "/m",
		server.URL + "/m/?signature=1"} {
		c, err := quick().open(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if want := strings.TrimRight(WithoutQuery(address), "/"); c.Path != want || !c.Remote() {
			t.Errorf("got %s, want %s", c.Path, want)
		}
		if err := same(c, files); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if others := len(c.Others()); strings.HasPrefix(address, "s3") && others != 4 {
			t.Errorf("%s: got %d other files", address, others)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
			t.Errorf("%s: %s stays in the directory of temporary files", address, left[0].Name())
		}
	}
	for _, r := range s.Requests() {
		if strings.Contains(r, ".bin") || strings.Contains(r, "onnx") {
			t.Errorf("got request %s", r)
		}
	}
}

// TestOpenFile reads one file from each kind of place.
func TestOpenFile(t *testing.T) {
	_, files := filled(t)
	server := webServer(t, files, nil)
	for _, address := range []string{"s3://weights/models/a/" + shard, server.URL + "/m/" + shard + "?signature=1"} {
		c, err := quick().open(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !c.Single || c.Path != WithoutQuery(address) || c.Shards()[0].File.Identity() == "" {
			t.Errorf("%s: got %s, single %t, identity %q", address, c.Path, c.Single, c.Shards()[0].File.Identity())
		}
		c.Close()
	}
}

// TestFaults checks that reads survive connections that end early, busy servers and slow ones.
func TestFaults(t *testing.T) {
	s, files := filled(t)
	var n atomic.Int64
	fault := func(fail func(w http.ResponseWriter)) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			switch n.Add(1) % 3 {
			case 0:
				fail(w)
				return true
			case 1:
				if key := strings.TrimPrefix(r.URL.Path, "/weights/models/a/"); strings.HasSuffix(key, ".safetensors") && files[key] != nil {
					var from, to int
					if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil || r.Header.Get("If-Match") == "" {
						t.Errorf("range %q, If-Match %q", r.Header.Get("Range"), r.Header.Get("If-Match"))
					}
					w.Header().Set("ETag", storetest.ETag(files[key]))
					w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(files[key])))
					w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
					w.WriteHeader(http.StatusPartialContent)
					_, _ = w.Write(files[key][from : from+(to-from)/2])
					panic(http.ErrAbortHandler)
				}
			}
			return false
		}
	}
	for name, f := range map[string]func(w http.ResponseWriter){
		"503":   func(w http.ResponseWriter) { storetest.Fail(w, http.StatusServiceUnavailable, "SlowDown") },
		"500":   func(w http.ResponseWriter) { storetest.Fail(w, http.StatusInternalServerError, "InternalError") },
		"reset": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		s.Fault = fault(f)
		c, err := quick().open(t.Context(), "s3://weights/models/a")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := same(c, files); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		storetest.Fail(w, http.StatusServiceUnavailable, "SlowDown")
		return true
	}
	if _, err := quick().open(t.Context(), "s3://weights/models/a"); err == nil || !strings.Contains(err.Error(), "SlowDown (6 attempts)") {
		t.Errorf("always busy: %v", err)
	}
}

// TestChanges checks that an object that is replaced, or removed, while it is read is an error, also on servers that
// ignore If-Match.
func TestChanges(t *testing.T) {
	s, files := filled(t)
	changed := bytes.Clone(files[shard])
	changed[len(changed)-1] ^= 1
	served := map[string][]byte{}
	for name, data := range files {
		served[name] = data
	}
	server := webServer(t, served, nil)
	for _, address := range []string{"s3://weights/models/a", server.URL + "/m"} {
		c, err := quick().open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		s.Put("models/a/"+shard, changed)
		served[shard] = changed
		err = same(c, files)
		if want := address + "/" + shard + ": the object changed while it was read"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
		c.Close()
		served[shard] = files[shard]
	}
	ignoring := webServer(t, served, func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Match"); return false })
	c, err := quick().open(t.Context(), ignoring.URL+"/m")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	served[shard] = changed
	if err := same(c, files); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("without If-Match: %v", err)
	}
}

// TestErrors checks the one line that each failure gives.
func TestErrors(t *testing.T) {
	s, files := filled(t)
	none := webServer(t, nil, nil)
	html := webServer(t, nil, func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true })
	denied := webServer(t, nil, func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true })
	partly := map[string][]byte{}
	for name, data := range files {
		if name != shard {
			partly[name] = data
		}
	}
	incomplete := webServer(t, partly, nil)
	for address, tc := range map[string]struct {
		cause error
		want  string
	}{
		"s3://other/models/a":           {fs.ErrNotExist, `there is no such bucket: check the name "other"`},
		"s3://weights/models/none":      {fs.ErrNotExist, "there is no object of a checkpoint: check the name"},
		"s3://weights/none.safetensors": {fs.ErrNotExist, "check the name"},
		"s3://weights/a?versionId=1":    {nil, "the name of an object with ? or # is unsupported"},
		"s3://key:secret@weights/a":     {nil, "a URL with a password ends up in logs"},
		"s3://weights/a/../b":           {nil, "with //, . or .. between slashes is unsupported"},
		"s3://weights/a//b":             {nil, "with //, . or .. between slashes is unsupported"},
		"s3:///a":                       {nil, "is not the URL of a checkpoint"},
		"s3://key:secret/x@weights/a":   {nil, "may contain a password before its @"},
		"s3://W/a":                      {nil, "Bucket name"},
		"s3://weights/models/a.gguf":    {fs.ErrNotExist, "s3://weights/models/a.gguf: file does not exist: the store responded NoSuchKey"},
		none.URL + "/a.gguf?signature=1": {fs.ErrNotExist, "/a.gguf: file does not exist: the server responded 404 Not Found: check the URL " +
			"(the request had the query of the URL, which is not shown)"},
		none.URL + "/m?signature=1": {fs.ErrNotExist, "it has no model.safetensors.index.json: name the folder of a checkpoint, or a " +
			".safetensors or .gguf file"},
		none.URL + "/m/x.safetensors": {fs.ErrNotExist, "404 Not Found: check the URL"},
		html.URL + "/m":               {nil, "does not support range requests"},
		denied.URL + "/m":             {fs.ErrPermission, "403 Forbidden"},
		incomplete.URL + "/m":         {fs.ErrNotExist, shard + ": file does not exist"},
		"https://127.0.0.1:1/m":       {nil, "connection refused (6 attempts)"},
		"http://127.0.0.1:99999/m":    {nil, "invalid port: check the address"},
		strings.Replace(none.URL, "http:", "HTTP:", 1) + "/m/x.safetensors": {fs.ErrNotExist, "404 Not Found: check the URL"},
		strings.Replace(none.URL, "http:", "https:", 1) + "/m.gguf": {nil,
			"/m.gguf: the server answered without TLS: use http:// if you trust the network, or name the HTTPS port"},
	} {
		_, err := quick().open(t.Context(), address)
		if err == nil || !Named(address) || !strings.Contains(err.Error(), tc.want) || tc.cause != nil && !errors.Is(err, tc.cause) ||
			strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "signature") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", address, err, tc.want)
		}
	}
	s.Private = true
	for key, want := range map[string]string{"": "without credentials: set AWS_ACCESS_KEY_ID", "id": ""} {
		t.Setenv("AWS_ACCESS_KEY_ID", key)
		t.Setenv("AWS_SECRET_ACCESS_KEY", key)
		c, err := quick().open(t.Context(), "s3://weights/models/a")
		if want != "" && (!errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("private, key %q: %v", key, err)
		}
		if err == nil {
			c.Close()
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "localhost")
	if _, err := quick().open(t.Context(), "s3://weights/models/a"); err == nil || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL: got") {
		t.Errorf("endpoint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := quick().open(ctx, none.URL+"/m"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestSmallFiles reads from a server that answers requests for parts of small files with the whole, and which has an empty file.
func TestSmallFiles(t *testing.T) {
	_, files := filled(t)
	served := maps.Clone(files)
	served["merges.txt"] = nil
	served["tokenizer.json"] = bytes.Repeat([]byte("0123456789"), ranges.FirstChunk/5) // two chunks
	server := webServer(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		name := strings.TrimPrefix(r.URL.Path, "/m/")
		data, ok := served[name]
		if ok && len(data) > 0 && !isWeights(name) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data) // the client may be gone
			return true
		}
		if ok {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}
		return ok
	})
	c, err := quick().open(t.Context(), server.URL+"/m")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := same(c, served); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(c.Others(), func(f hf.Other) bool { return f.Name == "merges.txt" }) {
		t.Error("the empty file is missing")
	}
}

// TestRedirect checks that the server that another one redirects to does not get the query of the first.
func TestRedirect(t *testing.T) {
	to := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Referer() != "" {
			t.Errorf("it got the referrer %s", r.Referer())
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("content"))
	}))
	t.Cleanup(to.Close)
	from := httptest.NewTLSServer(http.RedirectHandler(to.URL, http.StatusFound))
	t.Cleanup(from.Close)
	u, err := url.Parse(from.URL + "/x.safetensors?signature=1")
	if err != nil {
		t.Fatal(err)
	}
	w := &web{quick(), u, &http.Client{Transport: from.Client().Transport, CheckRedirect: checkRedirect}}
	if o, err := w.stat(t.Context()); err != nil || o.size != int64(len("content")) {
		t.Errorf("got %+v, %v", o, err)
	}
	around := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/again")
		w.WriteHeader(http.StatusFound)
	}))
	t.Cleanup(around.Close)
	if w.url, err = url.Parse(around.URL); err != nil {
		t.Fatal(err)
	}
	w.client.Transport = around.Client().Transport
	if _, err := w.stat(t.Context()); err == nil || !strings.Contains(err.Error(), ": more than 10 redirects, the last to "+w.url.Host+": ") ||
		strings.Contains(err.Error(), "redirected to") {
		t.Errorf("in a circle: %v", err)
	}
}

// TestTooManyBytes checks that files beside the weights are not downloaded if they are large together.
func TestTooManyBytes(t *testing.T) {
	s, _ := filled(t)
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("list-type") == "" {
			t.Errorf("got the request %s", r.URL)
			return false
		}
		_, _ = fmt.Fprint(w, "<ListBucketResult>") // the client may be gone
		for i := range allOthers/largestOther + 1 {
			_, _ = fmt.Fprintf(w, "<Contents><Key>models/a/%d.json</Key><Size>%d</Size></Contents>", i, largestOther)
		}
		_, _ = fmt.Fprint(w, "</ListBucketResult>")
		return true
	}
	const want = "more than 1 GiB: name the folder"
	if _, err := quick().open(t.Context(), "s3://weights/models/a"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
