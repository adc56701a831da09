package convert

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/verify"
)

// TestLinks converts sources with links: those to files of the source are copied, and those to other files are an
// error before anything is written, as the configuration too. Weights may lie elsewhere.
func TestLinks(t *testing.T) {
	src := writeModel(t, workersModel(1), madeConfig)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(src, "notes.txt")
	if err := errors.Join(os.WriteFile(filepath.Join(src, "real.txt"), []byte("text"), 0o600), os.Symlink("real.txt", link)); err != nil {
		t.Skip(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := planFor(t, src, "mxfp8").Run(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dst, "notes.txt")); err != nil || string(text) != "text" {
		t.Errorf("a link in the source: got %q, %v", text, err)
	}
	if err := errors.Join(os.Remove(link), os.Symlink(secret, link)); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "dst")
	p := planFor(t, src, "mxfp8")
	_, err := p.Run(t.Context(), other, RunOptions{})
	for _, err := range []error{err, p.Admit(other, false)} {
		if err == nil || !strings.HasPrefix(err.Error(), link+": a link to "+secret) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a link out of the source: %v", err)
		}
	}
	moved := func(name string) string {
		from, to := filepath.Join(src, name), filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.Rename(from, to), os.Symlink(to, from)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	config := moved(hf.ConfigName)
	if err := planFor(t, src, "mxfp8").Admit(other, false); err == nil || !strings.Contains(err.Error(), hf.ConfigName+": a link to "+config) {
		t.Errorf("a configuration out of the source: %v", err)
	}
	if _, err := os.Lstat(other + partialSuffix); err == nil {
		t.Error("something was written")
	}
	if err := errors.Join(os.Remove(filepath.Join(src, hf.ConfigName)), os.Rename(config, filepath.Join(src, hf.ConfigName))); err != nil {
		t.Fatal(err)
	}
	shards, err := filepath.Glob(filepath.Join(src, "*.safetensors"))
	if err != nil || len(shards) == 0 {
		t.Fatal(shards, err)
	}
	moved(filepath.Base(shards[0]))
	if _, err := planFor(t, src, "mxfp8").Run(t.Context(), other, RunOptions{}); err != nil {
		t.Errorf("weights out of the source: %v", err)
	}
}

// TestForeignResult puts a file of another program beside the result of a run: it does not become a part of it, and
// stays. When it was moved away, the run is resumed.
func TestForeignResult(t *testing.T) {
	src, dst := writeModel(t, workersModel(1), madeConfig), filepath.Join(t.TempDir(), "dst")
	notes := filepath.Join(dst+partialSuffix, "notes.txt")
	put := false
	report := func(verify.Progress) {
		if !put {
			put = os.WriteFile(notes, []byte("precious"), 0o600) == nil
		}
	}
	if _, err := planFor(t, src, "mxfp8").Run(t.Context(), dst, RunOptions{Progress: report}); err == nil || !strings.HasPrefix(err.Error(),
		notes+": not a file of the result") {
		t.Fatalf("error %v", err)
	}
	if text, err := os.ReadFile(notes); err != nil || string(text) != "precious" {
		t.Fatalf("got %q, %v", text, err)
	}
	if err := os.Remove(notes); err != nil {
		t.Fatal(err)
	}
	if _, err := planFor(t, src, "mxfp8").Run(t.Context(), dst, RunOptions{Resume: true}); err != nil {
		t.Error(err)
	}
}

// TestSharedFiles: a run does not replace a checkpoint that it reads files of: shards of the source that are links to it, also
// through other links, and files that the plan was made from.
func TestSharedFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	shard := "model.safetensors"
	planOf(t, at("a"))
	planOf(t, at("b"))
	planOf(t, at("c"))
	if err := errors.Join(os.Mkdir(at("chain"), 0o777), os.Remove(at("b/"+shard)), os.Symlink("../chain/link", at("b/"+shard)),
		os.Symlink(filepath.Join(at("a"), shard), at("chain/link")),
		os.Rename(at("c/"+shard), at("chain/"+shard)), os.Symlink("../chain/"+shard, at("c/"+shard))); err != nil {
		t.Skip(err)
	}
	for _, tc := range []struct {
		name, src, dst string
		reads          []string
		shared         bool
	}{
		{"a link to a shard", "b", "a", nil, true},
		{"a link through the destination", "b", "chain", nil, true},
		{"a link elsewhere", "c", "b", nil, false},
		{"another checkpoint", "c", "a", []string{at("a")}, true},
		{"a file of another checkpoint", "c", "a", []string{at("a/" + shard)}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := planFor(t, at(tc.src), "mxfp8")
			plan.Reads = tc.reads
			before := names(t, dir)
			admitted := plan.Admit(at(tc.dst), true)
			if !tc.shared {
				if admitted != nil {
					t.Fatal(admitted)
				}
				return
			}
			_, err := plan.Run(t.Context(), at(tc.dst), RunOptions{Force: true})
			for _, err := range []error{admitted, err} {
				if err == nil || !strings.HasPrefix(err.Error(), at(tc.dst)+": source and destination share files: ") {
					t.Errorf("error %v", err)
				}
			}
			if after := names(t, dir); after != before {
				t.Errorf("the folder has %s, before it had %s", after, before)
			}
		})
	}
}
