package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestForeign checks that a file of another container has its header, its tensors at the
// planned offsets, and zeros between them.
func TestForeign(t *testing.T) {
	prefix := []byte("OTHER container, its header")
	l, err := Foreign(prefix, 12, []TensorInfo{{Name: "a", Dtype: U8, Shape: []int64{3}, End: 3}, {Name: "b", Dtype: U8, Shape: []int64{2},
		Begin: 8, End: 10}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	w, err := Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, "b", []byte{4, 5}, 0)
	if _, err := l.Open(path); err == nil {
		t.Error("an unfinished file opens")
	}
	if err := w.Suspend(); err != nil {
		t.Fatal(err)
	}
	if w, err = Reopen(path, l); err != nil {
		t.Fatal(err)
	}
	w.Skip("b", 2)
	write(t, w, "a", []byte{1, 2, 3}, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := append(bytes.Clone(prefix), 1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 0, 0)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	f, err := l.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, _ := f.Lookup("b")
	p := make([]byte, 2)
	if err := f.ReadTensorAt(p, b, 0); err != nil || p[0] != 4 {
		t.Errorf("%v (%v)", p, err)
	}
	for _, other := range [][]byte{want[:len(want)-1], append([]byte("x"), want[1:]...)} {
		if err := os.WriteFile(path, other, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Open(path); err == nil {
			t.Errorf("%q opens", other)
		}
	}
	for _, bad := range [][]TensorInfo{{{Name: "a", End: 13}}, {{Name: "a", Begin: 3, End: 2}},
		{{Name: "a", End: 4}, {Name: "b", Begin: 3, End: 5}}, {{Name: "a"}, {Name: "a"}}} {
		if _, err := Foreign(prefix, 12, bad); err == nil {
			t.Errorf("%v is laid out", bad)
		}
	}
	if _, err := Foreign([]byte("short"), 0, nil); err == nil {
		t.Error("a header of five bytes is taken")
	}
}
