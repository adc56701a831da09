package hf

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// TestDamaged checks the tensors of a file with checksums, of which one is wrong, and one without.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	write := func(file string, names []string, wrong int) {
		var specs []safetensors.Spec
		for _, n := range names {
			specs = append(specs, safetensors.Spec{Name: n, Dtype: safetensors.U8, Shape: []int64{5}})
		}
		data := []byte("bytes")
		metadata := map[string]string{}
		if wrong >= 0 {
			r := checksum.Record{Plan: "0123456789abcdef0123456789abcdef"}
			for i := range names {
				sum := checksum.Of(data)
				if i == wrong {
					sum++
				}
				r.Tensors = append(r.Tensors, sum)
			}
			metadata[checksum.RecordKey] = r.String()
		}
		l, err := safetensors.NewLayout(specs, metadata)
		if err != nil {
			t.Fatal(err)
		}
		w, err := safetensors.Create(filepath.Join(dir, file), l)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := w.WriteTensorAt(n, data, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("model-00001-of-00002.safetensors", []string{"a", "b", "c"}, 1)
	write("model-00002-of-00002.safetensors", []string{"d"}, -1)
	c := open(t, dir)
	read := int64(0)
	names, err := c.Damaged(t.Context(), func(n int64) { read += n })
	if err != nil || !slices.Equal(names, []string{"b"}) || read != 15 {
		t.Errorf("got %q after %d bytes, error %v", names, read, err)
	}
}
