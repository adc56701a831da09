package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
)

// ggufs are the files of the sample in Q8_0, created once: one, and three in a folder.
var ggufs = sync.OnceValues(func() (map[string][]byte, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, err := sample.Open(ctx, sample.Name)
	if err != nil {
		return nil, err
	}
	plan, err := convert.PlanQuantize(ctx, source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.Q8_0}, Convention: "gguf"})
	if err != nil {
		return nil, err
	}
	parts, err := plan.Split(4 << 20)
	if err != nil {
		return nil, err
	}
	_, failure := plan.Run(ctx, filepath.Join(dir, "m.gguf"), convert.RunOptions{})
	_, err = parts.Run(ctx, filepath.Join(dir, "parts"), convert.RunOptions{})
	files := map[string][]byte{}
	walk := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[filepath.ToSlash(path[len(dir)+1:])], err = os.ReadFile(path)
		return err
	})
	return files, errors.Join(failure, err, walk, source.Close())
})

// servedGGUF returns a store with these files in the folder models, and the files.
func servedGGUF(t *testing.T) (*storetest.Server, map[string][]byte) {
	t.Helper()
	files, err := ggufs()
	if err != nil || len(files) != 4 {
		t.Fatal(len(files), err)
	}
	s := storetest.New(t)
	for name, data := range files {
		s.Put("models/"+name, data)
	}
	return s, files
}

// TestGGUF: a GGUF file of each kind of place, in one file, by its parts and as their folder, is quantized to the bytes of a local run,
// while two of three requests fail, one as busy, one by the connection.
func TestGGUF(t *testing.T) {
	s, files := servedGGUF(t)
	local := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(local, files["m.gguf"], 0o600); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	fault := storetest.Faults(&requests, 3)
	server := webServer(t, files, fault)
	want := filepath.Join(t.TempDir(), "want.gguf")
	source, err := convert.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	again := func(source *hf.Checkpoint, dst string) []byte {
		plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
			Convention: "gguf", Requantize: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(t.Context(), dst, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(dst)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	bytesOf := again(source, want)
	for _, address := range []string{"s3://weights/models/m.gguf", "gs://weights/models/m.gguf", server.URL + "/m/m.gguf?signature=1",
		"s3://weights/models/parts", "s3://weights/models/parts/model-00002-of-00003.gguf",
		server.URL + "/m/parts/model-00001-of-00003.gguf?signature=1"} {
		s.Fault = fault
		before := requests.Load()
		c, err := quick().open(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if n := requests.Load() - before; n > 40 {
			t.Errorf("%s: %d requests to open it", address, n)
		}
		wantPath := strings.TrimSuffix(WithoutQuery(address), "/parts")
		if !strings.HasPrefix(c.Path, wantPath) || c.GGUF == nil || c.Shards()[0].File.Identity() == "" {
			t.Errorf("got %s", c.Path)
		}
		if got := again(c, filepath.Join(t.TempDir(), "got.gguf")); !bytes.Equal(got, bytesOf) {
			t.Errorf("%s: other bytes than from the disk", address)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		s.Fault = nil
	}
}

// TestGGUFErrors: a part that is missing, an object that is replaced while it is read, and parts that have no folder.
func TestGGUFErrors(t *testing.T) {
	s, files := servedGGUF(t)
	c, err := quick().open(t.Context(), "s3://weights/models/m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(files["m.gguf"])
	changed[len(changed)-1] ^= 1
	s.Put("models/m.gguf", changed)
	tensors := c.GGUF.Tensors
	err = c.GGUF.ReadTensorAt(make([]byte, 1), tensors[len(tensors)-1], tensors[len(tensors)-1].Bytes()-1)
	if err == nil || !strings.Contains(err.Error(), "s3://weights/models/m.gguf: the object changed while it was read") {
		t.Errorf("replaced: %v", err)
	}
	reads := 0
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool { // of the header, after the object was found
		if reads++; r.Method == http.MethodGet {
			storetest.Fail(w, http.StatusForbidden, "AccessDenied")
		}
		return r.Method == http.MethodGet
	}
	if _, err := quick().open(t.Context(), "s3://weights/models/m.gguf"); err == nil || reads < 2 ||
		strings.Count(err.Error(), "s3://weights/models/m.gguf: ") != 1 {
		t.Errorf("header denied after %d requests: %v", reads, err)
	}
	root := storetest.New(t)
	for name, data := range files {
		if name != "m.gguf" {
			root.Put(filepath.Base(name), data)
		}
	}
	for _, bucket := range []string{"s3://weights", "gs://weights/"} {
		c, err := quick().open(t.Context(), bucket)
		if err != nil {
			t.Errorf("parts in no folder: %v", err)
			continue
		}
		if want := strings.TrimSuffix(bucket, "/") + "/model-00002-of-00003.gguf"; c.GGUF.Paths()[1] != want {
			t.Errorf("got %s, want %s", c.GGUF.Paths()[1], want)
		}
		c.Close()
	}
	without := storetest.New(t)
	for name, data := range files {
		if !strings.HasSuffix(name, "-00003-of-00003.gguf") {
			without.Put(name, data)
		}
	}
	if _, err := quick().open(t.Context(), "s3://weights/parts"); err == nil || !strings.Contains(err.Error(),
		"it is part 1 of a model in 3 files, and part 3 is missing: fetch all parts") {
		t.Errorf("a part is missing: %v", err)
	}
}
