package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// journal is the file of a part whose content a record has.
const journal = ".journal"

// weightsOf returns a file of weights with one tensor of bytes.
func weightsOf(tensor, data string) []byte {
	header := fmt.Sprintf(`{%q:{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, tensor, len(data), len(data))
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+data...)
}

// parted returns the destinations of two workers, whose parts it writes to their stages, and the files of the result.
func parted(t *testing.T) (workers []*Destination, files map[string][]byte) {
	t.Helper()
	t.Chdir(t.TempDir())
	files = map[string][]byte{}
	for worker, part := range []map[string][]byte{
		{"model-00001-of-00002.safetensors": weightsOf("a", "shard 1"), "1_Pooling/config.json": []byte("{ }"),
			safetensors.IndexName: []byte(`{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "` + shard + `"}}`),
			hf.ConfigName:         []byte("{}"), journal: []byte("0")},
		{shard: weightsOf("b", "shard 2"), journal: []byte("1")},
	} {
		d := destined(t, "s3://weights/out")
		if err := d.SetWorker(worker, 2); err != nil {
			t.Fatal(err)
		}
		for name, data := range part {
			at := filepath.Join(d.Staged(), name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o777), os.WriteFile(at, data, 0o600)); err != nil {
				t.Fatal(err)
			}
			if name != journal {
				files[name] = data
			}
		}
		workers = append(workers, d)
	}
	return workers, files
}

// merge joins the parts. In place of package convert, it takes the configuration and the index of worker 0.
func merge(ctx context.Context, t *testing.T, files map[string][]byte) error {
	d := destined(t, "s3://weights/out")
	p, err := d.Parts(ctx)
	if err != nil || p.Complete {
		return err
	}
	defer func() { _ = p.Close() }()
	for name := range files {
		worker := 0
		if name == shard {
			worker = 1
		}
		if name == hf.ConfigName || name == safetensors.IndexName {
			continue
		}
		if err := p.Check(ctx, worker, name, int64(len(files[name]))); err != nil {
			return err
		}
	}
	if err := os.Rename(p.Path+".microscale-part-0-of-2", p.Path); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(p.Path, journal)); err != nil {
		return err
	}
	return p.Publish(ctx)
}

// killed runs f with a store that ends at a request.
func killed(t *testing.T, s *storetest.Server, at int64, f func(ctx context.Context) error) error {
	var n atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Fault = func(http.ResponseWriter, *http.Request) bool {
		if n.Add(1) >= at {
			cancel()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	defer func() { s.Fault = nil }()
	return f(ctx)
}

// TestKilledWorkers ends a worker, or the merge, at every request. Before the merge there is no index and no
// config.json, and what is repeated completes the result.
func TestKilledWorkers(t *testing.T) {
	for step, done := range map[string]func(d []*Destination, ctx context.Context, files map[string][]byte) error{
		"worker 0": func(d []*Destination, ctx context.Context, _ map[string][]byte) error { return d[0].Upload(ctx, none) },
		"worker 1": func(d []*Destination, ctx context.Context, _ map[string][]byte) error { return d[1].Upload(ctx, none) },
		"merge": func(_ []*Destination, ctx context.Context, files map[string][]byte) error {
			return merge(ctx, t, files)
		},
	} {
		for kill := int64(1); ; kill++ {
			s := storetest.New(t)
			d, files := parted(t)
			if step == "merge" {
				if err := errors.Join(d[0].Upload(t.Context(), none), d[1].Upload(t.Context(), none)); err != nil {
					t.Fatal(err)
				}
			}
			err := killed(t, s, kill, func(ctx context.Context) error { return done(d, ctx, files) })
			objects := s.Objects()
			_, config := objects["out/"+hf.ConfigName]
			_, index := objects["out/"+safetensors.IndexName]
			if index && len(objects) < len(files) || step != "merge" && (config || index) {
				t.Errorf("%s, killed at %d: index %t, configuration %t, %d files", step, kill, index, config, len(objects))
			}
			if step != "merge" {
				for _, w := range d {
					w.Resume = true
					if err := errors.Join(w.Admit(t.Context()), w.Upload(t.Context(), none)); err != nil {
						t.Errorf("%s, killed at %d: %v", step, kill, err)
					}
				}
			}
			if err := errors.Join(merge(t.Context(), t, files), uploaded(s, "out", files)); err != nil {
				t.Errorf("%s, killed at %d: %v", step, kill, err)
			}
			if s.Uploads() > 0 {
				t.Errorf("%s, killed at %d: %d uploads are open", step, kill, s.Uploads())
			}
			if err == nil {
				if kill < 4 {
					t.Errorf("%s, killed at %d: no error", step, kill)
				}
				break
			}
		}
	}
}

// TestSameWorker lets a second worker of the same index write while the first one does.
func TestSameWorker(t *testing.T) {
	for name, want := range map[string]string{shard: "another run writes to the same DST",
		".microscale-part-1-of-2": "worker 1 of 2 was run twice"} {
		s := storetest.New(t)
		d, _ := parted(t)
		s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, name) {
				s.Put("out/"+name, []byte("of another worker"))
			}
			return false
		}
		if err := d[1].Upload(t.Context(), none); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFasterMerge lets another merge complete the result while one reads the records.
func TestFasterMerge(t *testing.T) {
	s := storetest.New(t)
	d, files := parted(t)
	if err := errors.Join(d[0].Upload(t.Context(), none), d[1].Upload(t.Context(), none)); err != nil {
		t.Fatal(err)
	}
	var begun atomic.Bool
	s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".microscale-part-1-of-2") && begun.CompareAndSwap(false, true) {
			if err := merge(t.Context(), t, files); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	if err := errors.Join(merge(t.Context(), t, files), uploaded(s, "out", files)); err != nil {
		t.Error(err)
	}
}

// TestParts checks the errors of workers and merges.
func TestParts(t *testing.T) {
	s := storetest.New(t)
	d, files := parted(t)
	expect := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	expect(merge(t.Context(), t, files), "no part is there: run the workers with --shard I/N first")
	if err := d[1].Upload(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	expect(merge(t.Context(), t, files), "1 of 2 parts are there, those of workers 0 are missing")
	expect(d[1].Admit(t.Context()), "the part of worker 1 of 2 is there")
	if err := errors.Join(d[0].Admit(t.Context()), d[0].Upload(t.Context(), none)); err != nil {
		t.Fatal(err)
	}
	s.Put("out/.microscale-part-2-of-3", []byte("{}"))
	expect(merge(t.Context(), t, files), "parts of several runs, with")
	other := destined(t, "s3://weights/out")
	if err := other.SetWorker(0, 4); err != nil {
		t.Fatal(err)
	}
	expect(other.Admit(t.Context()), "a part of a run with ")
	d[1].Force = true
	if err := errors.Join(d[1].Admit(t.Context()), d[1].Upload(t.Context(), none)); err != nil { // removes the part of 3
		t.Fatal(err)
	}
	s.Put("out/"+shard, []byte("shard x"))
	expect(merge(t.Context(), t, files), shard+" is missing or was replaced: run worker 1 of 2 again with --force")
	if err := errors.Join(d[1].Admit(t.Context()), d[1].Upload(t.Context(), none)); err != nil {
		t.Fatal(err)
	}
	s.Put("out/notes.txt", []byte("of the user"))
	expect(merge(t.Context(), t, files), "notes.txt")
	if objects := s.Objects(); objects["out/"+safetensors.IndexName] != nil {
		t.Error("the index is there")
	}
	single := destined(t, "s3://weights/a/out.safetensors")
	expect(single.SetWorker(0, 2), "one process writes a file")
	for name, want := range map[string]bool{".microscale-part-0-of-1": true, ".microscale-part-1-of-1": false,
		".microscale-part-01-of-2": false,
		".microscale-part--1-of-2": false, ".microscale-part-0-of-2x": false, "part-0-of-2": false} {
		if _, _, ok := parsePart(name); ok != want {
			t.Errorf("%s: %t", name, ok)
		}
	}
}

// TestRunWithoutProgress runs a plan in parts without Options.Progress.
func TestRunWithoutProgress(t *testing.T) {
	storetest.New(t)
	t.Chdir(t.TempDir())
	source, err := sample.Open(t.Context(), sample.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil {
		t.Fatal(err)
	}
	d := destined(t, "s3://weights/out")
	if _, err := d.Run(t.Context(), plan, d.Stage(), convert.RunOptions{}, func() func(done, total int64) { return none }); err != nil {
		t.Error(err)
	}
}
