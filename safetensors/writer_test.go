package safetensors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, w *Writer, name string, p []byte, off int64) {
	t.Helper()
	if err := w.WriteTensorAt(name, p, off); err != nil {
		t.Fatal(err)
	}
}

// create starts a file with the golden file's two tensors.
func create(t *testing.T) (w *Writer, path string) {
	t.Helper()
	l, err := NewLayout(goldenSpecs, nil)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "x.safetensors")
	w, err = Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Abort() })
	return w, path
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}

func TestWriterNeverOverwrites(t *testing.T) {
	l, err := NewLayout(goldenSpecs, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, l); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want ErrExist", err)
	}
	if got, err := os.ReadFile(path); string(got) != "precious" {
		t.Errorf("the file has become %q, %v", got, err)
	}
}

func TestWriterIncomplete(t *testing.T) {
	w, path := create(t)
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "b.weight", []byte{1, 2, 3}, 1)
	want := path + `: tensor "b.weight": 3 of its 4 bytes were written: write each exactly once`
	if err := w.Close(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closing again: %v", err)
	}
	if err := w.WriteTensorAt("b.weight", []byte{0}, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("writing after Close: %v", err)
	}
	if _, err := Open(path); err == nil {
		t.Error("an unfinished file can be read")
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	wantGone(t, path)
}

func TestWriterTwice(t *testing.T) {
	w, path := create(t)
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "a.scale", []byte{1}, 0)
	write(t, w, "b.weight", []byte{1, 2, 3, 4}, 0)
	want := path + `: tensor "a.scale": 4 of its 3 bytes were written: write each exactly once`
	if err := w.Close(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestWriterUnfinished checks that no reader accepts the file before Close, even if all data
// is written.
func TestWriterUnfinished(t *testing.T) {
	w, path := create(t)
	check := func(when string) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || info.Size() != w.layout.FileSize() {
			t.Errorf("%s: %v, %v", when, info, err)
		}
		_, err := Open(path)
		if want := path + ": byte 0: the header's length is 0: the file was never finished; write or fetch it again"; err == nil ||
			err.Error() != want {
			t.Errorf("%s: error %v, want %s", when, err, want)
		}
	}
	check("at first")
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "b.weight", []byte{1, 2, 3, 4}, 0)
	check("with all data")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := w.Abort(); err != nil {
		t.Errorf("Abort after Close: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Abort after Close removed the file: %v", err)
	}
}

func TestWriterAbort(t *testing.T) {
	w, path := create(t)
	write(t, w, "a.scale", []byte{1}, 0)
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	wantGone(t, path)
	if err := w.Abort(); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close after Abort: %v", err)
	}
}

func TestWriteTensorAtErrors(t *testing.T) {
	w, path := create(t)
	for _, test := range []struct {
		name string
		n    int
		off  int64
		want string
	}{
		{"c", 1, 0, `tensor "c" is not in the layout`},
		{"a.scale", 4, 0, `tensor "a.scale": 4 bytes at 0 are not inside its 3 bytes`},
		{"a.scale", 1, -1, `tensor "a.scale": 1 bytes at -1 are not inside its 3 bytes`},
		{"b.weight", 2, 3, `tensor "b.weight": 2 bytes at 3 are not inside its 4 bytes`},
	} {
		err := w.WriteTensorAt(test.name, make([]byte, test.n), test.off)
		if want := path + ": " + test.want; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "b.weight", []byte{1, 2, 3, 4}, 0)
	if err := w.Close(); err != nil {
		t.Errorf("rejected writes were counted: %v", err)
	}
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	l, err := NewLayout(goldenSpecs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(dir, "none", "x"), l); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
	// Most filesystems reject 2⁶¹ bytes, some do not. No file must remain.
	if l, err = NewLayout([]Spec{{"a", U8, []int64{1<<61 - 1}}}, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "huge")
	w, err := Create(path, l)
	if err == nil {
		err = w.Abort()
	} else if !strings.HasPrefix(err.Error(), path+": making the file 2305843009213694055 bytes long: ") {
		t.Errorf("error %v", err)
	} else {
		err = nil
	}
	if err != nil {
		t.Error(err)
	}
	wantGone(t, path)
}

func TestDiskFull(t *testing.T) {
	cause := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	err := ioError("dst/x", place("a", 100), cause)
	want := `dst/x: tensor "a": byte 100: ` + syscall.ENOSPC.Error() + `: free space on that filesystem and run again`
	if err.Error() != want || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestWriterSync: the error of a disk that fails at the end names the file. Closing the
// descriptor behind the writer's back simulates such a disk.
func TestWriterSync(t *testing.T) {
	w, path := create(t)
	write(t, w, "a.scale", []byte{1, 2, 3}, 0)
	write(t, w, "b.weight", []byte{1, 2, 3, 4}, 0)
	w.f.Close()
	err := w.Close()
	if want := path + ": syncing it: " + os.ErrClosed.Error(); err == nil || err.Error() != want || !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	wantGone(t, path)
}
