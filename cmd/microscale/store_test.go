package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/safetensors"
)

// upload copies the files of a directory into a folder of a store.
func upload(t *testing.T, s *storetest.Server, dir, folder string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s.Put(folder+"/"+e.Name(), data)
	}
}

// TestStore checks that commands read a checkpoint in an object store, or on a web server, as they read it on disk,
// and that a run that ended early resumes.
func TestStore(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local")
	directory(t, local, twoWeights()...)
	s := storetest.New(t)
	upload(t, s, local, "a/b")
	files := http.FileServer(http.Dir(local))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	weights, err := filepath.Glob(filepath.Join(local, "*.safetensors"))
	if err != nil || len(weights) == 0 {
		t.Fatal(weights, err)
	}
	here := filepath.Join(t.TempDir(), "out")
	done(t, "quantize", local, here, "--format", "nvfp4")
	want := strings.ReplaceAll(snapshot(t, here), here, "")
	upload(t, s, here, "quantized")
	for _, source := range []string{"s3://weights/a/b", "gs://weights/a/b/", web.URL} {
		there := filepath.Join(t.TempDir(), "out")
		done(t, "quantize", source, there, "--format", "nvfp4", "--resume")
		if got := strings.ReplaceAll(snapshot(t, there), there, ""); got != want {
			t.Errorf("from %s:\n%s\nfrom the disk:\n%s", source, got, want)
		}
		done(t, "verify", source, there)
		done(t, "verify", source, "s3://weights/quantized")
		done(t, "identify", there, "--source", source)
	}
	for _, args := range [][]string{{"inspect", "s3://weights/quantized"}, {"lint", "s3://weights/quantized"},
		{"diff", here, "s3://weights/quantized"}, {"convert", "s3://weights/quantized", "OUT", "--convention", "modelopt"},
		{"dequantize", "s3://weights/quantized", "OUT"}, {"inspect", "s3://weights/a/b/" + filepath.Base(weights[0])}} {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "OUT", filepath.Join(t.TempDir(), "out"))
		}
		done(t, args...)
	}
	t.Chdir(t.TempDir())
	done(t, "quantize", local, "s3://weights/out", "--format", "nvfp4")
	done(t, "dequantize", "s3://weights/out", "back")
	done(t, "dequantize", here, "back-from-disk")
	if a, b := snapshot(t, "back"), strings.ReplaceAll(snapshot(t, "back-from-disk"), "back-from-disk", "back"); a != b {
		t.Errorf("through the store:\n%s\nfrom the disk:\n%s", a, b)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v", entries, err)
	}
	status, stdout, stderr := execute("", "quantize", local, "s3://weights/out", "--format", "mxfp8")
	fails(t, status, stdout, stderr, "microscale: s3://weights/out: file already exists")
	done(t, "quantize", local, "s3://weights/out", "--format", "mxfp8", "--force")
	if text := done(t, "inspect", "s3://weights/out"); !strings.Contains(text, "mxfp8") {
		t.Errorf("inspect of the replaced checkpoint says\n%s", text)
	}
	status, stdout, stderr = execute("", "inspect", "s3://weights/none")
	fails(t, status, stdout, stderr, "microscale: s3://weights/none: file does not exist: there is no object of a checkpoint: check the name")
}

// TestSignature checks that no command prints the query of a URL, which may be a signature, and that servers get it.
func TestSignature(t *testing.T) {
	dir := t.TempDir()
	local, quantized := filepath.Join(dir, "local"), filepath.Join(dir, "quantized")
	directory(t, local, twoWeights()...)
	done(t, "quantize", local, quantized, "--format", "nvfp4")
	const query = "?signature=secret"
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if "?"+r.URL.RawQuery != query {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	src, q := web.URL+"/local"+query, web.URL+"/quantized"+query
	for _, tc := range []struct {
		status int
		args   []string
	}{
		{exitDone, []string{"inspect", q}},
		{exitDone, []string{"inspect", q, "--json"}},
		{exitDone, []string{"lint", q}},
		{exitDone, []string{"lint", q, "--json"}},
		{exitDone, []string{"lint", q, "--sarif"}},
		{exitDone, []string{"diff", q, quantized, "--json"}},
		{exitFailed, []string{"identify", src}},
		{exitDone, []string{"identify", q, "--source", src, "--json"}},
		{exitDone, []string{"identify", q, "--source=" + src}},
		{exitDone, []string{"verify", src, q, "--json"}},
		{exitFailed, []string{"verify", q, src}},
		{exitDone, []string{"quantize", src, "OUT", "--format", "nvfp4", "--json"}},
		{exitDone, []string{"dequantize", q, "OUT", "--json"}},
		{exitDone, []string{"convert", q, "OUT", "--convention", "modelopt"}},
		{exitFailed, []string{"inspect", web.URL + "/none" + query}},
		{exitUsage, []string{"diff", q, q + "&more"}},
		{exitFailed, []string{"run", q, "text"}},
		{exitUsage, []string{"eval", q, "--reference", src}},
		{exitUsage, []string{"inspect", q, q}},
		{exitFailed, []string{"inspect", "s3://key:sec/ret@secret/b"}},
	} {
		for i := range tc.args {
			tc.args[i] = strings.ReplaceAll(tc.args[i], "OUT", filepath.Join(t.TempDir(), "out"))
		}
		status, stdout, stderr := execute("", tc.args...)
		if text := stdout + stderr; status != tc.status || strings.Contains(text, "secret") || strings.Contains(text, "sec/ret") {
			t.Errorf("%q: exit status %d, want %d:\n%s", tc.args, status, tc.status, text)
		}
	}
}

// indexed writes a checkpoint with three files of weights.
func indexed(t *testing.T, source string) {
	t.Helper()
	directory(t, source)
	index := `{"metadata": {}, "weight_map": {`
	for i := range 3 {
		name, file := fmt.Sprintf("l.%d.proj.weight", i), safetensors.ShardName(i+1, 3)
		weightsFile(t, filepath.Join(source, file), weight{name: name, shape: []int64{64, 128}})
		index += fmt.Sprintf("%q: %q, ", name, file)
	}
	writeFile(t, filepath.Join(source, safetensors.IndexName), []byte(strings.TrimSuffix(index, ", ")+"}}"))
	writeFile(t, filepath.Join(source, "tokenizer.json"), []byte("{}"))
	if err := os.Remove(filepath.Join(source, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
}

// folder returns the files in a folder of a store.
func folder(s *storetest.Server, name string) map[string][]byte {
	files := map[string][]byte{}
	for key, data := range s.Objects() {
		if file, ok := strings.CutPrefix(key, name+"/"); ok {
			files[file] = data
		}
	}
	return files
}

// TestStoreParts checks that a run into a store uploads each file while it makes the next one, with the bytes of a run on
// disk, and that a run that ended early, at each upload, resumes without sending a file again.
func TestStoreParts(t *testing.T) {
	dir := t.TempDir()
	source, local := filepath.Join(dir, "source"), filepath.Join(dir, "local")
	indexed(t, source)
	done(t, "quantize", source, local, "--format", "nvfp4")
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	for at := 0; ; at++ {
		var uploads, most atomic.Int64
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			staged, err := filepath.Glob("*.microscale-staged/*/*.safetensors")
			if err != nil {
				t.Error(err)
			}
			most.Store(max(most.Load(), int64(len(staged))))
			if uploads.Add(1) <= int64(at) {
				return false
			}
			storetest.Fail(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		dst := fmt.Sprint("s3://weights/", at)
		command := []string{"quantize", source, dst, "--format", "nvfp4"}
		status, stdout, stderr := execute("", command...)
		if most := most.Load(); most < 1 || most > 2 {
			t.Errorf("the stage had %d files of weights", most)
		}
		s.Fault = nil
		if status != exitDone {
			fails(t, status, stdout, stderr, "microscale: "+dst)
			left := stagedWeights(t)
			if len(left) == 0 && at < 7 { // three files of weights, another file, three records
				t.Errorf("ended after %d uploads: the stage is gone", at)
			}
			var sent atomic.Bool
			s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				for path, was := range left { // until the first upload, after which its file is removed while others are looked for
					is := stagedWeights(t)[path]
					if same := is != nil && os.SameFile(is, was) && is.ModTime().Equal(was.ModTime()); !same && !sent.Load() {
						t.Errorf("ended after %d uploads: %s was made again", at, path)
					}
				}
				if r.Method == http.MethodPut {
					sent.Store(true)
				}
				return false
			}
			before := len(s.Requests())
			done(t, append(command, "--resume")...)
			s.Fault = nil
			for _, r := range s.Requests()[before:] {
				if method, file, _ := strings.Cut(r, " "); method == http.MethodPut && at > 0 && strings.HasSuffix(file, safetensors.ShardName(1, 3)) {
					t.Errorf("resumed after %d uploads: request %s", at, r)
				}
			}
		}
		got := folder(s, fmt.Sprint(at))
		entries, err := os.ReadDir(local)
		if err != nil || len(got) != len(entries) {
			t.Errorf("ended after %d uploads: %d files, want %d, %v", at, len(got), len(entries), err)
		}
		for _, e := range entries {
			if want, err := os.ReadFile(filepath.Join(local, e.Name())); err != nil || !bytes.Equal(got[e.Name()], want) {
				t.Errorf("ended after %d uploads: %s differs, %v", at, e.Name(), err)
			}
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) != 0 {
			t.Errorf("the working directory has %v, %v", entries, err)
		}
		if status == exitDone {
			break
		}
	}
}

// stagedWeights returns the files of weights in the stages in the working directory.
func stagedWeights(t *testing.T) map[string]os.FileInfo {
	t.Helper()
	paths, err := filepath.Glob("*.microscale-staged/*/*.safetensors")
	if err != nil {
		t.Error(err)
	}
	files := map[string]os.FileInfo{}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil { // it may be removed meanwhile
			files[path] = info
		}
	}
	return files
}

// TestStoreForce checks that --force of several files leaves a checkpoint as it is if a file would stay beside the new ones,
// and otherwise replaces it.
func TestStoreForce(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	indexed(t, source)
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	command := []string{"quantize", source, "s3://weights/out", "--format", "nvfp4"}
	done(t, command...)
	s.Put("out/notes.txt", []byte("text"))
	want := folder(s, "out")
	command[len(command)-1] = "mxfp8"
	status, stdout, stderr := execute("", append(command, "--force")...)
	fails(t, status, stdout, stderr, "microscale: s3://weights/out/notes.txt: file already exists, and the new checkpoint has no such file")
	if got := folder(s, "out"); !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("the checkpoint changed: %d files, want %d", len(got), len(want))
	}
	writeFile(t, filepath.Join(source, "notes.txt"), []byte("text"))
	done(t, append(command, "--force")...)
	done(t, "verify", source, "s3://weights/out")
	// with --resume, a file of another checkpoint is found before the first upload
	s.Put("other/model.safetensors", []byte("another"))
	before := len(s.Requests())
	status, stdout, stderr = execute("", "quantize", source, "s3://weights/other", "--format", "nvfp4", "--resume")
	fails(t, status, stdout, stderr, "microscale: s3://weights/other/model.safetensors: file already exists")
	for _, r := range s.Requests()[before:] {
		if strings.HasPrefix(r, http.MethodPut) {
			t.Errorf("beside another checkpoint: request %s", r)
		}
	}
}

// TestStoreRefused checks that what a store rejects is found before the first tensor is converted, and that a run that resumes at a
// complete checkpoint ends at once.
func TestStoreRefused(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	indexed(t, source)
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	s.Put("foreign/notes.txt", []byte("text"))
	for dst, want := range map[string]string{
		"s3://weights/denied":  ": s3://weights/denied: permission denied: the store responded AccessDenied without credentials: set AWS",
		"gs://weights/denied":  ": gs://weights/denied: permission denied: the store responded AccessDenied without credentials: set GOOGLE",
		"s3://other/folder":    "microscale: s3://other/folder: file does not exist: there is no such bucket",
		"s3://weights/foreign": "microscale: s3://weights/foreign/notes.txt: file already exists, and the new checkpoint has no such file",
	} {
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			denied := strings.Contains(r.URL.Path, "/denied/") && r.Method != http.MethodGet
			if denied {
				storetest.Fail(w, http.StatusForbidden, "AccessDenied")
			}
			return denied
		}
		status, stdout, stderr := execute("", "quantize", source, dst, "--format", "nvfp4", "--resume")
		fails(t, status, stdout, stderr, want)
		if entries, err := os.ReadDir("."); err != nil || len(entries) != 0 {
			t.Errorf("%s: the working directory has %v, %v", dst, entries, err)
		}
	}
	s.Fault = nil
	before := len(s.Requests())
	done(t, "quantize", source, "s3://weights/out", "--format", "nvfp4", "--dry-run")
	for _, r := range s.Requests()[before:] {
		if !strings.HasPrefix(r, http.MethodGet) {
			t.Errorf("--dry-run: request %s", r)
		}
	}
	for _, dst := range []string{"s3://weights/out", "s3://weights/m.gguf", "gs://weights/out"} {
		command := []string{"quantize", source, dst, "--format", "nvfp4", "--resume"}
		if strings.HasSuffix(dst, ".gguf") {
			command[1] = "sample:"
		}
		done(t, command...)
		before := len(s.Requests())
		if text := done(t, command...); !strings.HasPrefix(text, dst+" is complete: ") || !strings.Contains(text, "nvfp4 (") {
			t.Errorf("resumed at a complete checkpoint:\n%s", text)
		}
		for _, r := range s.Requests()[before:] {
			if strings.HasPrefix(r, http.MethodPut) && !strings.Contains(r, "probe") {
				t.Errorf("resumed at a complete checkpoint: request %s", r)
			}
		}
		status, stdout, stderr := execute("", append(command, "--scale-search")...)
		fails(t, status, stdout, stderr, "microscale: "+dst+": a complete checkpoint of another source or other options: model")
		stage := filepath.Join(stageOf(t, dst), "kept")
		if err := os.MkdirAll(filepath.Dir(stage), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, stage, []byte("of another run"))
		status, stdout, stderr = execute("", command...)
		if strings.HasSuffix(dst, ".gguf") { // the run compares it; where parts are uploaded, it counts for nothing
			fails(t, status, stdout, stderr, "m.gguf: the destination exists and is not the finished result")
		} else if status != exitDone {
			t.Errorf("beside a stage: %s", stderr)
		}
		if _, err := os.Stat(stage); err != nil {
			t.Errorf("the stage of another run is gone: %v", err)
		}
		if err := os.RemoveAll(filepath.Dir(filepath.Dir(stage))); err != nil {
			t.Fatal(err)
		}
	}
	if s.Uploads() > 0 {
		t.Errorf("%d uploads are open", s.Uploads())
	}
	changed := func(want string, command ...string) {
		t.Helper()
		status, stdout, stderr := execute("", append(command, "--format", "nvfp4", "--resume")...)
		fails(t, status, stdout, stderr, ": a complete checkpoint of another source or other options: "+want)
	}
	out := []string{"quantize", source, "s3://weights/out"}
	writeFile(t, filepath.Join(source, "tokenizer.json"), []byte("[]"))
	changed("tokenizer.json differs from the source: use --force to replace it, or another DST", out...)
	writeFile(t, filepath.Join(source, "tokenizer.json"), []byte("{}"))
	weights := filepath.Join(source, safetensors.ShardName(3, 3))
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-2] ^= 1
	writeFile(t, weights, data)
	changed("l.2.proj.weight of the source changed", out...)
	s.Put("out/config.json", []byte("{}"))
	changed("config.json differs", out...)
	split := []string{"quantize", "sample:", "s3://weights/split", "--convention", "gguf", "--split-max-size", "2M"}
	done(t, append(split, "--format", "nvfp4", "--scale-search")...)
	parts := folder(s, "split")
	names := slices.Sorted(maps.Keys(parts))
	done(t, append(split, "--format", "nvfp4", "--force")...)
	s.Put("split/"+names[1], parts[names[1]])
	changed(names[1]+" has other options, or no record", split...)
	status, stdout, stderr := execute("", "quantize", split[2]+"/"+names[0], split[2]+"/"+names[1], "--format", "mxfp4", "--requantize",
		"--force")
	fails(t, status, stdout, stderr, "microscale: "+split[2]+"/"+names[1]+": SRC is there, too: use another DST")
	writeFile(t, "short.txt", []byte("a")) // which would be an error, too
	status, stdout, stderr = execute("", "quantize", "sample:", "s3://weights/foreign", "--format", "nvfp4", "--method", "gptq",
		"--text", "short.txt", "--resume")
	fails(t, status, stdout, stderr, "microscale: s3://weights/foreign/notes.txt: file already exists")
}

// stageOf returns the path of the stage of a destination.
func stageOf(t *testing.T, dst string) string {
	t.Helper()
	d, err := store.OpenDestination(t.Context(), dst)
	if err != nil {
		t.Fatal(err)
	}
	return d.Stage()
}

// TestStoreForceResume ends a --force run after two of three parts: --force --resume sends only the third, and a run with another
// format makes all anew.
func TestStoreForceResume(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	indexed(t, source)
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	for _, format := range []string{"mxfp8", "mxfp6-e3m2"} {
		dst := "s3://weights/" + format
		done(t, "quantize", source, dst, "--format", "nvfp4")
		command := []string{"quantize", source, dst, "--format", "mxfp8", "--force"}
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			last := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, safetensors.ShardName(3, 3))
			if last {
				storetest.Fail(w, http.StatusForbidden, "AccessDenied")
			}
			return last
		}
		status, stdout, stderr := execute("", command...)
		fails(t, status, stdout, stderr, "microscale: "+dst+"/"+safetensors.ShardName(3, 3)+": permission denied")
		s.Fault = nil
		if format != "mxfp8" {
			stages, err := filepath.Glob("*.microscale-staged")
			if err != nil || len(stages) != 1 {
				t.Fatal(stages, err)
			}
			if err := os.RemoveAll(stages[0]); err != nil { // of another plan, it is an error
				t.Fatal(err)
			}
		}
		command[4] = format
		before := len(s.Requests())
		done(t, append(command, "--resume")...)
		sent := 0
		for _, r := range s.Requests()[before:] {
			if method, file, _ := strings.Cut(r, " "); method == http.MethodPut && strings.HasSuffix(file, safetensors.Suffix) {
				sent++
			}
		}
		if want := map[string]int{"mxfp8": 1, "mxfp6-e3m2": 3}[format]; sent != want {
			t.Errorf("%s: sent %d files of weights, want %d", format, sent, want)
		}
		done(t, "verify", source, dst)
		if text := done(t, "inspect", dst); !strings.Contains(text, format) {
			t.Errorf("inspect says\n%s", text)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 0 {
		t.Errorf("the working directory has %v, %v", entries, err)
	}
}

// TestStoreWorkers checks that workers without a shared disk write the bytes of one process, in any order and again
// after a connection broke, and what a merge says that comes too early.
func TestStoreWorkers(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	indexed(t, source)
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	done(t, "quantize", source, "s3://weights/whole", "--format", "nvfp4")
	want := folder(s, "whole")
	status, stdout, stderr := execute("", "merge", "s3://weights/none")
	fails(t, status, stdout, stderr, "microscale: s3://weights/none: file does not exist: no part is there: run the workers with --shard")
	for _, workers := range []int{2, 3} {
		dst := fmt.Sprintf("s3://weights/by-%d", workers)
		command := func(worker int, more ...string) []string {
			return append([]string{"quantize", source, dst, "--format", "nvfp4", "--shard", fmt.Sprintf("%d/%d", worker, workers)}, more...)
		}
		s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, ".microscale-part-") {
				storetest.Fail(w, http.StatusForbidden, "AccessDenied")
				return true
			}
			return false
		}
		status, stdout, stderr = execute("", command(workers-1)...)
		fails(t, status, stdout, stderr, fmt.Sprintf("microscale: %s/.microscale-part-%d-of-%d: permission denied", dst, workers-1, workers))
		s.Fault = nil
		for worker := workers - 1; worker > 0; worker-- {
			done(t, command(worker, "--resume")...)
		}
		status, stdout, stderr = execute("", "merge", dst)
		fails(t, status, stdout, stderr, fmt.Sprintf("microscale: %s: %d of %d parts are there, those of workers 0 are missing", dst,
			workers-1, workers))
		done(t, command(0)...)
		status, stdout, stderr = execute("", command(1)...)
		fails(t, status, stdout, stderr, fmt.Sprintf("microscale: %s: file already exists: the part of worker 1 of %d is there", dst, workers))
		before := len(s.Requests())
		done(t, command(1, "--resume")...)
		for _, r := range s.Requests()[before:] {
			if strings.HasPrefix(r, http.MethodPut) {
				t.Errorf("resumed after the end: request %s", r)
			}
		}
		if text := done(t, "merge", dst); !strings.Contains(text, dst+" is complete: ") {
			t.Errorf("merge says %s", text)
		}
		if got := folder(s, strings.TrimPrefix(dst, "s3://weights/")); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%d workers: the bytes differ, or the files: %d, want %d", workers, len(got), len(want))
		}
		if text := done(t, "merge", dst); !strings.Contains(text, "nothing was merged") {
			t.Errorf("merged again: %s", text)
		}
		status, stdout, stderr = execute("", command(0, "--resume")...)
		fails(t, status, stdout, stderr, "microscale: "+dst+": file already exists: the checkpoint is complete")
	}
	// another format replaces the checkpoint, and parts of two formats are no checkpoint
	replace := []string{"quantize", source, "s3://weights/by-2", "--format", "mxfp8", "--force", "--shard"}
	done(t, append(replace, "0/2")...)
	done(t, "quantize", source, "s3://weights/by-2", "--format", "nvfp4", "--force", "--shard", "1/2")
	status, stdout, stderr = execute("", "merge", "s3://weights/by-2")
	fails(t, status, stdout, stderr, "microscale: s3://weights/by-2: the parts of workers 0 and 1 have different sources or options")
	done(t, append(replace, "1/2")...)
	done(t, "merge", "s3://weights/by-2")
	done(t, "verify", source, "s3://weights/by-2")
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 0 {
		t.Errorf("the working directory has %v, %v", entries, err)
	}
	status, stdout, stderr = execute("", "quantize", source, "s3://weights/x.safetensors", "--format", "nvfp4", "--shard", "0/2")
	fails(t, status, stdout, stderr, "microscale: s3://weights/x.safetensors: one process writes a file: omit --shard")
}
