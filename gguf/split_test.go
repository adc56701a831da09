package gguf

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeParts writes a model of three files to a directory: the first one has the metadata and no tensors. change edits the metadata of a
// part.
func writeParts(t *testing.T, change func(part int, metadata []Pair) []Pair) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	specs := [][]Spec{nil, everySpec[:2], everySpec[2:4]}
	for i, list := range specs {
		metadata := []Pair{{partKey, uint16(i)}, {partsKey, uint16(3)}, {tensorsKey, int32(4)}}
		if i == 0 {
			metadata = append([]Pair{{"general.architecture", "llama"}}, metadata...)
		}
		if change != nil {
			metadata = change(i, metadata)
		}
		path := partPath(filepath.Join(dir, "model-00000-of-00000.gguf"), i, len(specs))
		data, err := os.ReadFile(build(t, layOut(t, list, metadata)))
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// TestParts opens a split model by each of its parts.
func TestParts(t *testing.T) {
	paths := writeParts(t, nil)
	for _, path := range paths {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Name() != path || f.Value("general.architecture") != "llama" || f.Value(partsKey) != nil || len(f.Tensors) != 4 ||
			strings.Join(f.Paths(), " ") != strings.Join(paths, " ") {
			t.Errorf("%s: got %+v", path, f)
		}
		var size int64
		for _, p := range paths {
			info, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if f.Size() != size {
			t.Errorf("got %d bytes, want %d", f.Size(), size)
		}
		for i, s := range everySpec[:4] {
			info, ok := f.Lookup(s.Name)
			if !ok || f.Tensors[i].Name != s.Name {
				t.Fatalf("%s is missing", s.Name)
			}
			got := make([]byte, info.Bytes())
			if err := f.ReadTensorAt(got, info, 0); err != nil || !bytes.Equal(got, content(info)) {
				t.Errorf("%s: other bytes (%v)", s.Name, err)
			}
		}
	}
}

// TestBrokenParts reports what is wrong with a split model in one line.
func TestBrokenParts(t *testing.T) {
	replace := func(in int, key string, value any) func(part int, metadata []Pair) []Pair {
		return func(part int, metadata []Pair) []Pair {
			for i := range metadata {
				if part == in && metadata[i].Key == key {
					metadata[i].Value = value
				}
			}
			return metadata
		}
	}
	for want, paths := range map[string][]string{
		"says that it is part 1 of 3: fetch all parts of the same model": writeParts(t, replace(2, partKey, uint16(0))),
		"says that it is part 2 of 4: fetch":                             writeParts(t, replace(1, partsKey, uint16(4))),
		"its parts have 4 tensors together, and it says 5":               writeParts(t, replace(0, tensorsKey, int32(5))),
	} {
		_, err := Open(paths[0])
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	paths := writeParts(t, nil)
	other := filepath.Join(filepath.Dir(paths[0]), "model.gguf")
	if err := os.Rename(paths[1], other); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "part 2 of a model in 3 files, and its name does not end in "+
		"-00002-of-00003.gguf") {
		t.Errorf("another name: got %v", err)
	}
	if _, err := Open(paths[2]); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
		"part 3 of a model in 3 files, and part 2 is missing: fetch all parts") {
		t.Errorf("a missing part: got %v", err)
	}
}

// TestPartHeaders: the headers of a model in many parts are limited together, so that its parts do not fill the memory one by one.
func TestPartHeaders(t *testing.T) {
	opened := 0
	_, err := OpenWith("m-00001-of-00009.gguf", func(name string) (*File, error) {
		opened++
		return &File{name: name, dataStart: maxHeaderSize/3 + 1, Metadata: []Pair{{partKey, uint16(opened - 1)}, {partsKey, uint16(9)}}}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "the headers of its parts have more than") || opened != 3 {
		t.Errorf("opened %d parts, got %v", opened, err)
	}
}
