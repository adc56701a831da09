package lint

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// corpusPath is the directory of checkpoints for tests of programs that read them, which TestRules writes with -update.
const corpusPath = "../../../../conformance/checkpoints"

// A corpusCase says what is to be found in the directory "broken" of a ZIP file, and not in "good".
type corpusCase struct {
	File     string   `json:"file"`
	Rule     string   `json:"rule"`
	ID       string   `json:"id"`
	Severity string   `json:"severity"`
	Clients  []string `json:"clients"`          // for which it is found
	Tensor   string   `json:"tensor,omitempty"` // the first of those at fault; "": the checkpoint
	What     string   `json:"what"`
	Good     bool     `json:"good"` // there is such a directory
}

// A corpus collects cases with the files of their checkpoints, by name of the ZIP file and path in it.
type corpus struct {
	cases []corpusCase
	files map[string]map[string][]byte
}

// add adds the files of a checkpoint to those of a case, below a directory.
func (c *corpus) add(t *testing.T, rule, below, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	file := rule + ".zip"
	if c.files[file] == nil {
		c.files[file] = map[string][]byte{}
	}
	for _, path := range paths {
		if c.files[file][below+"/"+filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares the corpus with the stored one, or writes it.
func (c *corpus) check(t *testing.T) {
	t.Helper()
	document, err := json.MarshalIndent(c.cases, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	document = append(document, '\n')
	if *update {
		c.write(t, document)
	}
	const remedy = "go test ./cmd/microscale/internal/lint -run TestRules -update writes it"
	if have, err := os.ReadFile(filepath.Join(corpusPath, "corpus.json")); err != nil || !bytes.Equal(have, document) {
		t.Errorf("corpus.json differs, error %v: %s", err, remedy)
	}
	for name, files := range c.files {
		z, err := zip.OpenReader(filepath.Join(corpusPath, name))
		if err != nil {
			t.Errorf("%v: %s", err, remedy)
			continue
		}
		if len(z.File) != len(files) {
			t.Errorf("%s: %d files, want %d: %s", name, len(z.File), len(files), remedy)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(r); err != nil || !bytes.Equal(data, files[f.Name]) {
				t.Errorf("%s: %s differs, error %v: %s", name, f.Name, err, remedy)
			}
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
	if stored, err := filepath.Glob(filepath.Join(corpusPath, "*.zip")); err != nil || len(stored) != len(c.files) {
		t.Errorf("%d of %d files, error %v", len(stored), len(c.files), err)
	}
}

// write writes the corpus. Compressed bytes depend on the version of Go, so only what they decode to is compared.
func (c *corpus) write(t *testing.T, document []byte) {
	t.Helper()
	if err := os.RemoveAll(corpusPath); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(corpusPath, 0o755); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{"corpus.json": document}
	for name, files := range c.files {
		var packed bytes.Buffer
		z := zip.NewWriter(&packed)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			w, err := z.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(files[path]); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		out[name] = packed.Bytes()
	}
	for name, data := range out {
		if err := os.WriteFile(filepath.Join(corpusPath, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
