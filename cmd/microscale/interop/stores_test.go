package interop

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
)

// A motoServer is an object store with Amazon's API that is not ours.
type motoServer struct{ url string }

// moto starts a server with the bucket weights, and points the variables of the environment at it.
func moto(t *testing.T) motoServer {
	t.Helper()
	interpreter := python(t, "moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
	cmd := exec.Command(interpreter, "s3_server.py", "weights")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s := motoServer{"http://127.0.0.1:" + strings.TrimSpace(port)}
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": s.url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id",
		"AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": ""} {
		t.Setenv(name, value)
	}
	return s
}

// request sends a request for a path of the server, and returns the body of the answer.
func (s motoServer) request(t *testing.T, method, path string, body io.Reader) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS id:unchecked") // without any, only public objects are served
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v", method, path, answer.Status, err)
	}
	return data
}

// uploads returns the number of uploads in parts that have not ended.
func (s motoServer) uploads(t *testing.T) int {
	t.Helper()
	return strings.Count(string(s.request(t, http.MethodGet, "/weights?uploads", nil)), "<UploadId>")
}

// same compares the objects of a folder with the files of a directory.
func (s motoServer) same(t *testing.T, folder, dir string) {
	t.Helper()
	var listing struct{ Contents []struct{ Key string } }
	if err := xml.Unmarshal(s.request(t, http.MethodGet, "/weights?list-type=2&prefix="+folder+"/", nil), &listing); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(listing.Contents) != len(entries) {
		t.Fatalf("%s: got %v, want %v, %v", folder, listing.Contents, entries, err)
	}
	for _, e := range entries {
		want, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.request(t, http.MethodGet, "/weights/"+folder+"/"+e.Name(), nil); string(got) != string(want) {
			t.Errorf("%s/%s: got %d bytes, want %d others", folder, e.Name(), len(got), len(want))
		}
	}
}

// TestMoto quantizes from and to a store that is not ours: by one process that is killed while it uploads, and resumes;
// by two workers and a merge. The objects equal the files of a local run. Of two runs at a time with one destination, one
// ends.
func TestMoto(t *testing.T) {
	slow.Full(t, "it installs a server, and uploads to it in parts, which have 16 MiB")
	s, program, dir := moto(t), build(t), t.TempDir()
	source, local := filepath.Join(dir, "source"), filepath.Join(dir, "local")
	storedSource(t, source)
	run := func(worker string, args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "JOB_COMPLETION_INDEX="+worker)
		return cmd
	}
	done := func(cmd *exec.Cmd) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", cmd.Args[1:], err, out)
		}
	}
	done(run("", "quantize", source, local, "--format", "mxfp8"))
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		file, err := os.Open(filepath.Join(source, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		s.request(t, http.MethodPut, "/weights/source/"+e.Name(), file)
	}

	const src = "s3://weights/source"
	whole := []string{"quantize", src, "s3://weights/whole", "--format", "mxfp8", "--resume"}
	killed := run("", whole...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- killed.Wait() }()
	for s.uploads(t) == 0 {
		select {
		case err := <-ended:
			t.Fatalf("the run ended before it could be killed: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the run ended before it was killed")
	}
	done(run("", whole...))
	s.same(t, "whole", local)
	if n := s.uploads(t); n > 0 {
		t.Errorf("%d uploads of the killed run are left", n)
	}
	out, err := run("", whole[:len(whole)-1]...).CombinedOutput()
	if want := "s3://weights/whole: file already exists"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("again: got %s, want %s", out, want)
	}

	var workers sync.WaitGroup
	for worker := range 2 {
		workers.Go(func() {
			done(run(fmt.Sprint(worker), "quantize", src, "s3://weights/parts", "--format", "mxfp8", "--shard", "auto/2"))
		})
	}
	workers.Wait()
	done(run("", "merge", "s3://weights/parts"))
	s.same(t, "parts", local)
	done(run("", "verify", src, "s3://weights/parts"))
	s.race(t, program, source, local)
	entries, err = os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v", entries, err)
	}
}

// race converts to two formats and one folder at a time: one run ends, and the other finds that it is not alone.
func (s motoServer) race(t *testing.T, program, source, local string) {
	formats := []string{"mxfp8", "mxint8"}
	outputs, failures := make([][]byte, len(formats)), make([]error, len(formats))
	var runs sync.WaitGroup
	for i, format := range formats {
		cmd := exec.Command(program, "quantize", source, "s3://weights/race", "--format", format)
		cmd.Dir = t.TempDir()
		runs.Go(func() { outputs[i], failures[i] = cmd.CombinedOutput() })
	}
	runs.Wait()
	for i, err := range failures {
		switch loser := string(outputs[1-i]); {
		case err != nil:
			continue
		case failures[1-i] == nil || !strings.Contains(loser, fs.ErrExist.Error()):
			t.Errorf("%s: got %s, want %v", formats[1-i], loser, fs.ErrExist)
		case i == 0:
			s.same(t, "race", local)
		}
		return
	}
	t.Errorf("no run ended: %s", outputs)
}

// storedSource writes a checkpoint with two files of weights. MXFP8 of the first is larger than a part of an upload.
func storedSource(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	index := ""
	for i, rows := range []int64{8<<10 + 256, 64} {
		name, file := fmt.Sprintf("l.%d.proj.weight", i), safetensors.ShardName(i+1, 2)
		layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: name, Dtype: safetensors.BF16, Shape: []int64{rows, 2 << 10}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, layout.FileSize())
		for at := copy(data, layout.HeaderBytes()); at < len(data); at += 2 {
			data[at], data[at+1] = byte(rnd.Uint32()), 0x3c+byte(rnd.Uint32())&0x83
		}
		index += fmt.Sprintf(", %q: %q", name, file)
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{hf.ConfigName: "{}", "tokenizer.json": "{}",
		safetensors.IndexName: `{"metadata": {}, "weight_map": {` + index[2:] + "}}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
