package safetensors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestManyFiles checks that few of many files have open descriptors, and that a file replaced
// while it was closed is an error.
func TestManyFiles(t *testing.T) {
	const count = 4 * maxOpen
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i, Suffix)) }
	layout, err := NewLayout([]Spec{{"a", U8, []int64{4}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(i int) {
		w, err := Create(path(i), layout)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.WriteTensorAt("a", []byte{byte(i), 1, 2, 3}, 0), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	files := make([]*File, count)
	for i := range files {
		write(i)
		if files[i], err = Open(path(i)); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	read := func(i int) error {
		var data [4]byte
		err := files[i].ReadTensorAt(data[:], files[i].Tensors()[0], 0)
		if err == nil && data[0] != byte(i) {
			err = fmt.Errorf("file %d has %v", i, data)
		}
		return err
	}
	var wg sync.WaitGroup
	for step := range 4 {
		wg.Go(func() {
			for i := range count {
				if err := read((i*7 + step*count/4) % count); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := handles.recent.Len(); n > maxOpen {
		t.Errorf("%d files are open, at most %d should be", n, maxOpen)
	}
	if files[0].r.(*handle).f != nil {
		for i := 1; i <= maxOpen; i++ {
			if err := read(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Remove(path(0)); err != nil {
		t.Fatal(err)
	}
	write(0)
	var changed *ContainerError
	if err := read(0); !errors.As(err, &changed) {
		t.Errorf("of a file that was replaced: %v", err)
	}
	if err := files[1].Close(); err != nil {
		t.Error(err)
	}
	if err := read(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed file: %v", err)
	}
}

// TestManyWriters checks that few of many writers have open descriptors, and that all write their
// files, also those whose descriptors were closed and reopened.
func TestManyWriters(t *testing.T) {
	const count = 4 * maxOpen
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i, Suffix)) }
	layout, err := NewLayout([]Spec{{"a", U8, []int64{4}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	writers := make([]*Writer, count)
	for i := range writers {
		if writers[i], err = Create(path(i), layout); err != nil {
			t.Fatal(err)
		}
		defer writers[i].Abort()
	}
	var wg sync.WaitGroup
	for k := range int64(4) {
		wg.Go(func() {
			for i := range count {
				i = (i*7 + int(k)*count/4) % count
				if err := writers[i].WriteTensorAt("a", []byte{byte(i + int(k))}, k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	open := 0
	for _, w := range writers {
		if w.f.f != nil {
			open++
		}
	}
	if open > maxOpen {
		t.Errorf("%d files are open, want at most %d", open, maxOpen)
	}
	for i, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path(i))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if err := errors.Join(f.ReadTensorAt(got, f.Tensors()[0], 0), f.Close()); err != nil || got[0] != byte(i) || got[3] != byte(i+3) {
			t.Errorf("file %d: got %v, %v", i, got, err)
		}
	}
}

// TestWriterReplaced checks that a writer does not write to a file that replaced its own while
// its descriptor was closed.
func TestWriterReplaced(t *testing.T) {
	w, path := create(t)
	handles.Lock()
	err := w.f.release()
	handles.Unlock()
	if err == nil {
		err = os.Rename(path, path+".old")
	}
	if err == nil {
		err = os.WriteFile(path, make([]byte, w.layout.FileSize()), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteTensorAt("a.scale", []byte{1}, 0); err == nil {
		t.Error("it wrote to another file")
	}
}
