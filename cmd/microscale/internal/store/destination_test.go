package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// stage writes a checkpoint-like directory, whose first shard has several parts of an upload, and returns its files.
func stage(t *testing.T, d *Destination) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"model-00001-of-00002.safetensors": bytes.Repeat([]byte("shard 1."), 6<<20/8), shard: []byte("shard 2"),
		"tokenizer.json": []byte("{}"), "1_Pooling/config.json": []byte("{ }"), hf.ConfigName: []byte("{}"), safetensors.IndexName: []byte("{}")}
	t.Chdir(t.TempDir())
	d.part = 5 << 20 // the smallest that S3 permits
	for name, data := range files {
		at := filepath.Join(d.Stage(), name)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// destined returns a destination that does not wait between attempts.
func destined(t *testing.T, address string) *Destination {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	d, err := quick().destination(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func none(_, _ int64) {}

// uploaded returns an error unless the store has exactly these files in a folder.
func uploaded(s *storetest.Server, folder string, files map[string][]byte) error {
	got := map[string][]byte{}
	for key, data := range s.Objects() {
		if name, ok := strings.CutPrefix(key, folder+"/"); ok {
			got[name] = data
		}
	}
	if !maps.EqualFunc(got, files, bytes.Equal) {
		return errors.New("the store has " + strings.Join(slices.Sorted(maps.Keys(got)), ", ") + ", or other content")
	}
	return nil
}

// TestUpload uploads a stage to stores, once only, and replaces it.
func TestUpload(t *testing.T) {
	for _, address := range []string{"s3://weights/out", "gs://weights/a/out/"} {
		s := storetest.New(t)
		d := destined(t, address)
		files := stage(t, d)
		if err := d.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		if err := d.Upload(t.Context(), func(done, _ int64) { last = done }); err != nil {
			t.Fatal(err)
		}
		if err := uploaded(s, d.at.key, files); err != nil || s.Uploads() > 0 || last < 6<<20 {
			t.Errorf("%s: %v; %d uploads are open; progress %d", address, err, s.Uploads(), last)
		}
		notSent := func(r string) bool { return !strings.HasPrefix(r, "PUT") || strings.HasSuffix(r, probeName) }
		puts := slices.DeleteFunc(s.Requests(), notSent)
		requests := 2 + 5 // parts of one file, and other files
		if strings.HasPrefix(address, "gs") {
			requests = 1 + 5
		}
		if n := len(puts); n != requests || !strings.Contains(puts[n-1], safetensors.IndexName) ||
			!strings.HasSuffix(puts[n-2], "/"+hf.ConfigName) {
			t.Errorf("%s: got requests\n%s", address, strings.Join(puts, "\n"))
		}
		if err := d.Admit(t.Context()); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", address, err)
		}
		d.Resume = true
		if err := errors.Join(d.Admit(t.Context()), d.Upload(t.Context(), none)); err != nil {
			t.Error(err)
		}
		if again := slices.DeleteFunc(s.Requests(), notSent); len(again) != len(puts) {
			t.Errorf("%s: %d requests sent again", address, len(again)-len(puts))
		}
		replaced := stage(t, d)
		replaced[shard] = []byte("shard 2 again")
		if err := os.WriteFile(filepath.Join(d.Stage(), shard), replaced[shard], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Upload(t.Context(), none); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "use --force") {
			t.Errorf("%s: other content: %v", address, err)
		}
		s.Put(d.at.key+"/old.safetensors", []byte("an older shard"))
		d.Resume, d.Force = false, true
		if err := d.Admit(t.Context()); err == nil || !strings.Contains(err.Error(), "have no weights") {
			t.Errorf("%s: texts by names of weights: %v", address, err)
		}
		s.Put(d.at.key+"/old.safetensors", []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
		if err := errors.Join(d.Admit(t.Context()), d.Upload(t.Context(), none), uploaded(s, d.at.key, replaced)); err != nil {
			t.Errorf("%s: replaced: %v", address, err)
		}
		s.Put(d.at.key+"/notes.txt", []byte("of the user"))
		if err := d.Upload(t.Context(), none); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "notes.txt") {
			t.Errorf("%s: a file of the user: %v", address, err)
		}
	}
}

// TestKilledUpload ends uploads at every request, as if the process were killed: then there is no config.json unless all
// other files but the index are there, and no index unless all are. A repeated upload gives all files.
func TestKilledUpload(t *testing.T) {
	for kill := int64(1); ; kill++ {
		s := storetest.New(t)
		d := destined(t, "s3://weights/out")
		files := stage(t, d)
		var n atomic.Int64
		var over atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		s.Fault = func(http.ResponseWriter, *http.Request) bool {
			if n.Add(1) >= kill && !over.Load() { // late requests of the first upload may still read Fault
				cancel()
				panic(http.ErrAbortHandler) // also what would be cleaned up
			}
			return false
		}
		err := d.Upload(ctx, none)
		cancel()
		if err == nil {
			if kill < 10 {
				t.Errorf("killed at %d: no error", kill)
			}
			return
		}
		objects := s.Objects()
		for i, name := range []string{hf.ConfigName, safetensors.IndexName} { // the last two
			if _, there := objects["out/"+name]; there && len(objects) < len(files)-1+i {
				t.Errorf("killed at %d: %s is there, and only %d files", kill, name, len(objects))
			}
		}
		over.Store(true)
		d.Resume = true
		if err := errors.Join(d.Admit(t.Context()), d.Upload(t.Context(), none), uploaded(s, "out", files)); err != nil {
			t.Errorf("killed at %d: %v", kill, err)
		}
		if s.Uploads() > 0 {
			t.Errorf("killed at %d: %d uploads are open", kill, s.Uploads())
		}
	}
}

// TestBusyUpload uploads to a store that is busy and ends connections.
func TestBusyUpload(t *testing.T) {
	s := storetest.New(t)
	d := destined(t, "s3://weights/out")
	files := stage(t, d)
	var n atomic.Int64
	s.Fault = storetest.Faults(&n, 4)
	if err := errors.Join(d.Upload(t.Context(), none), uploaded(s, "out", files)); err != nil {
		t.Error(err)
	}
}

// TestLost uploads to a store of which the answers to some requests are lost: it has done what they ask for.
func TestLost(t *testing.T) {
	for _, address := range []string{"s3://weights/out", "gs://weights/out"} {
		s := storetest.New(t)
		d := destined(t, address)
		files := stage(t, d)
		lost := map[string]bool{}
		s.Lose = func(r *http.Request) bool {
			first := !lost[r.Method+r.URL.String()]
			lost[r.Method+r.URL.String()] = true
			return first
		}
		if err := errors.Join(d.Upload(t.Context(), none), uploaded(s, "out", files)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestRace lets another run write an object after the upload began, also one that is uploaded in parts.
func TestRace(t *testing.T) {
	for _, address := range []string{"s3://weights/out", "gs://weights/out"} {
		for _, name := range []string{"model-00001-of-00002.safetensors", hf.ConfigName} {
			s := storetest.New(t)
			d := destined(t, address)
			stage(t, d)
			s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if (r.Method == http.MethodPut || r.Method == http.MethodPost) && strings.HasSuffix(r.URL.Path, name) {
					s.Put("out/"+name, []byte("of another run"))
				}
				return false
			}
			if err := d.Upload(t.Context(), none); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "another run writes") {
				t.Errorf("%s: %s: got %v", address, name, err)
			}
			objects := s.Objects()
			if string(objects["out/"+name]) != "of another run" {
				t.Errorf("%s: %s was replaced", address, name)
			}
			if _, there := objects["out/"+safetensors.IndexName]; there || s.Uploads() > 0 {
				t.Errorf("%s: the index is there: %t; %d uploads are open", address, there, s.Uploads())
			}
		}
	}
}

// TestReplacedEarly ends the replacement of a checkpoint, whose shards have the same names, at every request: then it does not
// open, unless it is the old or the new one.
func TestReplacedEarly(t *testing.T) {
	_, files := filled(t)
	const folder = "models/a"
	d := destined(t, "s3://weights/"+folder)
	t.Chdir(t.TempDir())
	replaced := maps.Clone(files)
	for name, data := range files {
		if strings.HasSuffix(name, safetensors.Suffix) {
			data = bytes.Clone(data)
			data[len(data)-1] ^= 1
			replaced[name] = data
		}
		at := filepath.Join(d.Stage(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for kill := int64(1); ; kill++ {
		s, _ := filled(t)
		d := destined(t, "s3://weights/"+folder)
		d.Force = true
		var n atomic.Int64
		var over atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		s.Fault = func(http.ResponseWriter, *http.Request) bool {
			if n.Add(1) >= kill && !over.Load() { // late requests of the first upload may still read Fault
				cancel()
				panic(http.ErrAbortHandler)
			}
			return false
		}
		err := d.Upload(ctx, none)
		cancel()
		over.Store(true)
		if err == nil {
			if kill < 10 {
				t.Errorf("only %d requests", kill)
			}
			return
		}
		c, opened := quick().open(t.Context(), "s3://weights/"+folder)
		if opened == nil {
			if same(c, files) != nil && same(c, replaced) != nil {
				t.Errorf("killed at %d: a mixture opens", kill)
			}
			opened = c.Close()
		}
		if opened != nil && !strings.Contains(opened.Error(), "and no "+safetensors.IndexName) {
			t.Errorf("killed at %d: %v", kill, opened)
		}
	}
}

// TestDestinations checks which URLs are destinations.
func TestDestinations(t *testing.T) {
	storetest.New(t)
	for address, want := range map[string]string{"https://host/x": "web servers are only read", "s3://weights": "no folder in it",
		"s3://other/x": "no such bucket", "s3://other/x.safetensors": "no such bucket"} {
		d, err := quick().destination(t.Context(), address)
		if err == nil {
			err = d.Admit(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	d := destined(t, "s3://weights/a/out.safetensors")
	if got := d.Stage(); got != filepath.Join("out.safetensors-3c557d5a.microscale-staged", "out.safetensors") {
		t.Errorf("got stage %s", got)
	}
	for source, clash := range map[string]bool{"s3://weights/a": true, "s3://weights/a/out.safetensors": true, "s3://weights/b": false,
		"local": false} {
		if err := d.Reads(source); (err != nil) != clash {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestWritable: whether a store permits uploads is found without a trace, also of a server that ignores conditions, by requests about the
// object that credentials may be limited to, and not by Admit, of which a plan alone makes use.
func TestWritable(t *testing.T) {
	for _, tc := range []struct{ address, key string }{{"s3://weights/out", "out/"}, {"s3://weights/x/m.gguf", "x/m.gguf"},
		{"gs://weights/out", "out/"}, {"gs://weights/x/m.gguf", "x/m.gguf"}} {
		s := storetest.New(t)
		s.Put("out2/kept", nil)
		d := destined(t, tc.address)
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("If-Match")
			outside := r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasPrefix(r.URL.Path, "/weights/"+tc.key)
			if outside {
				storetest.Fail(w, http.StatusForbidden, "AccessDenied")
			}
			return outside
		}
		if err := d.Admit(t.Context()); err != nil {
			t.Errorf("%s: %v", tc.address, err)
		}
		for _, r := range s.Requests() {
			if strings.HasPrefix(r, "P") || strings.HasPrefix(r, http.MethodDelete) {
				t.Errorf("%s: Admit: request %s", tc.address, r)
			}
		}
		if err := d.Writable(t.Context()); err != nil {
			t.Errorf("%s: %v", tc.address, err)
		}
		if len(s.Objects()) != 1 || s.Uploads() > 0 {
			t.Errorf("%s: %d objects, %d uploads are open", tc.address, len(s.Objects()), s.Uploads())
		}
		if d.Single() {
			continue
		}
		s.Put("out/"+probeName, nil) // of a killed run
		if found, err := d.present(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("%s: present returns %v, %v", tc.address, found, err)
		}
	}
	s := storetest.New(t)
	d := destined(t, "s3://weights/out")
	for _, key := range []string{"out/" + probeName, "out2/" + probeName} { // of a killed run, and of another one that is under way
		if _, err := d.at.core.NewMultipartUpload(t.Context(), "weights", key, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if d.abandon(t.Context(), nil); s.Uploads() != 1 {
		t.Errorf("%d uploads are open, want that of another folder", s.Uploads())
	}
}
