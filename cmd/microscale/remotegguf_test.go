package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// TestRemoteGGUF checks that every command reads a GGUF file of an object store and of a hub, in one file and in parts, as it reads it on
// disk.
func TestRemoteGGUF(t *testing.T) {
	model, text := tinyModel(t)
	local := t.TempDir()
	const part, second = "model-00001-of-00002.gguf", "model-00002-of-00002.gguf"
	done(t, "quantize", model, filepath.Join(local, "m.gguf"), "--format", "bf16")
	splitGGUF(t, filepath.Join(local, "m.gguf"), local)
	s := storetest.New(t)
	for _, name := range []string{"m.gguf", part, second} {
		data, err := os.ReadFile(filepath.Join(local, name))
		if err != nil {
			t.Fatal(err)
		}
		s.Put("models/"+name, data)
	}
	serveHub(t, local)
	t.Setenv("HF_TOKEN", "secret")
	times := regexp.MustCompile(`(, in|in) [0-9.]+ m?s.*`)
	for name, remotes := range map[string][]string{
		"m.gguf": {"s3://weights/models/m.gguf", "hf://some/model/m.gguf"}, part: {"gs://weights/models/" + part, "hf://some/model/" + part},
	} {
		for _, args := range [][]string{
			{"inspect", "SRC"}, {"lint", "SRC"}, {"eval", "SRC", "--text", text}, {"run", "SRC", "onthehub", "--max-tokens", "4"},
			{"quantize", "SRC", "OUT.gguf", "--format", "mxfp4"}, {"quantize", "SRC", "OUT.gguf", "--plan", "q4_k_m"},
			{"quantize", "SRC", "OUT", "--format", "nvfp4"}, {"dequantize", "SRC", "OUT.safetensors"},
			{"verify", "SRC", filepath.Join(local, name)},
		} {
			var outputs []string
			for _, source := range append([]string{filepath.Join(local, name)}, remotes...) {
				dir := t.TempDir()
				out := filepath.Join(dir, "out")
				var given []string
				for _, arg := range args {
					given = append(given, strings.NewReplacer("SRC", source, "OUT", out).Replace(arg))
				}
				printed := times.ReplaceAllString(done(t, given...), "")
				outputs = append(outputs, strings.NewReplacer(source, "SRC", filepath.Join(local, name), "SRC", dir, "").Replace(
					printed+snapshot(t, dir)))
			}
			for i, got := range outputs {
				if got != outputs[0] {
					t.Errorf("%s %s:\n%s\nfrom the disk:\n%s", remotes[i-1], args, got, outputs[0])
				}
			}
		}
	}
	status, stdout, stderr := execute("", "inspect", "hf://some/model")
	fails(t, status, stdout, stderr, "microscale: hf://some/model: file does not exist: no safetensors files; name one of its GGUF files, "+
		"such as hf://some/model/")
	s.Put("one/m.gguf", s.Objects()["models/m.gguf"])
	status, stdout, stderr = execute("", "inspect", "s3://weights/one")
	fails(t, status, stdout, stderr, "microscale: s3://weights/one: file does not exist: no safetensors files; name a GGUF file, such as "+
		"s3://weights/one/m.gguf")
	status, stdout, stderr = execute("", "inspect", "hf://some/model/none.gguf")
	fails(t, status, stdout, stderr, "microscale: hf://some/model/none.gguf: file does not exist: the GGUF files of the repository are ")
	status, stdout, stderr = execute("", "push", model, "hf://some/model/m.gguf")
	fails(t, status, stdout, stderr, "microscale: hf://some/model/m.gguf: a file of a repository: name the repository")
}

// splitGGUF writes a GGUF file in BF16 to a directory in two files.
func splitGGUF(t *testing.T, path, dir string) {
	t.Helper()
	source, err := convert.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	bf16, err := checkpoint.LookupFormat("bf16")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: bf16},
		Convention: "gguf"})
	if err == nil {
		plan, err = plan.Split(48 << 10)
	}
	if err == nil {
		_, err = plan.Run(t.Context(), filepath.Join(dir, "parts"), convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "parts", "*.gguf"))
	if err != nil || len(parts) != 2 {
		t.Fatal(parts, err)
	}
	for _, part := range parts {
		if err := os.Rename(part, filepath.Join(dir, filepath.Base(part))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "parts")); err != nil {
		t.Fatal(err)
	}
}

// TestRemoteGGUFResume ends a run that reads a GGUF file of a store, and resumes it; a file that was replaced meanwhile is an error.
func TestRemoteGGUFResume(t *testing.T) {
	dir := t.TempDir()
	local, want, out := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "want.gguf"), filepath.Join(dir, "out.gguf")
	done(t, "quantize", "sample:", local, "--format", "bf16")
	done(t, "quantize", local, want, "--format", "mxfp4")
	data, err := os.ReadFile(local)
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.New(t)
	s.Put("m.gguf", data)
	requests := func(flag, name string) int { // of a plan, which opens the file once
		before := len(s.Requests())
		done(t, "quantize", "s3://weights/m.gguf", out, flag, name, "--dry-run")
		return len(s.Requests()) - before
	}
	if plain, mixture := requests("--format", "mxfp4"), requests("--plan", "q4_k_m"); plain != mixture || plain == 0 {
		t.Errorf("%d requests for a format, %d for a mixture", plain, mixture)
	}
	var reads atomic.Int64
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || reads.Add(1) < 4 {
			return false
		}
		storetest.Fail(w, http.StatusForbidden, "AccessDenied")
		return true
	}
	command := []string{"quantize", "s3://weights/m.gguf", out, "--format", "mxfp4", "--threads", "1", "--resume"}
	status, stdout, stderr := execute("", command...)
	fails(t, status, stdout, stderr, "microscale: s3://weights/m.gguf: permission denied")
	s.Fault = nil
	changed := append([]byte{}, data...)
	changed[len(changed)-1] ^= 1
	s.Put("m.gguf", changed)
	status, stdout, stderr = execute("", command...)
	fails(t, status, stdout, stderr, "m.gguf has other contents than when the earlier run began")
	s.Put("m.gguf", data)
	done(t, command...)
	a, errA := os.ReadFile(want)
	b, errB := os.ReadFile(out)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the resumed run wrote other bytes than a local one (%v, %v)", errA, errB)
	}
}

// TestUnversioned: the command tells, once, that it would not notice the change of a file of a server that sends no version.
func TestUnversioned(t *testing.T) {
	dir := t.TempDir()
	done(t, "quantize", "sample:", filepath.Join(dir, "m"), "--format", "nvfp4")
	done(t, "quantize", "sample:", filepath.Join(dir, "m.gguf"), "--format", "mxfp4")
	served := func(modified time.Time) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			http.ServeContent(w, r, "", modified, bytes.NewReader(data))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	without, with := served(time.Time{}), served(time.Now())
	for _, name := range []string{"/m", "/m.gguf"} {
		status, _, stderr := execute("", "inspect", without+name)
		if want := "microscale: warning: " + strings.TrimPrefix(without, "http://") + " sends neither ETag nor Last-Modified: if a file " +
			"changes while it is read, only another size is noticed\n"; status != exitDone || stderr != want {
			t.Errorf("%s: got status %d, %q, want %q", name, status, stderr, want)
		}
		if status, _, stderr := execute("", "inspect", with+name); status != exitDone || stderr != "" {
			t.Errorf("%s: got status %d, %q", name, status, stderr)
		}
	}
}

// TestCapitalSuffix: the name of a GGUF file may end in capital letters, as one that is read, one that is written, and a part.
func TestCapitalSuffix(t *testing.T) {
	model, _ := tinyModel(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "M.GGUF")
	done(t, "quantize", model, file, "--format", "bf16")
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		t.Fatalf("%v, %v", info, err)
	}
	done(t, "verify", model, file)
	splitGGUF(t, file, dir)
	serveHub(t, dir)
	t.Setenv("HF_TOKEN", "secret")
	done(t, "verify", model, "hf://some/model/M.GGUF")
	status, stdout, stderr := execute("", "inspect", "hf://some/model")
	fails(t, status, stdout, stderr, "name one of its GGUF files, such as hf://some/model/M.GGUF")
	for i, part := range []string{"model-00001-of-00002", "model-00002-of-00002"} {
		if err := os.Rename(filepath.Join(dir, part+".gguf"), filepath.Join(dir, part+".GGUF")); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			done(t, "verify", model, filepath.Join(dir, part+".GGUF"))
		}
	}
}
