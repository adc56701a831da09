package llamacpp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Record returns the record in the metadata of a GGUF file, which joins those of its parts. ok is false if there is none.
func Record(f *gguf.File) (r checksum.Record, ok bool, err error) {
	for _, part := range f.Parts() {
		text, has := part.Value(checksum.RecordKey).(string)
		if !has {
			continue // gguf-split wrote it
		}
		one, err := checksum.ParseRecord(text)
		if err != nil {
			return one, true, err
		}
		r.Plan, r.Tensors, r.Source, ok = one.Plan, append(r.Tensors, one.Tensors...), append(r.Source, one.Source...), true
	}
	switch {
	case !ok || len(r.Tensors) == len(f.Tensors):
		return r, ok, nil
	case slices.ContainsFunc(f.Metadata, func(p gguf.Pair) bool { return strings.HasPrefix(p.Key, "split.") }):
		return checksum.Record{}, false, nil // gguf-split joined parts, and kept the record of the first
	}
	return r, true, fmt.Errorf("the record is of %d tensors, and the file has %d", len(r.Tensors), len(f.Tensors))
}

// ChecksumOf reads a tensor of a GGUF file and returns its checksum.
func ChecksumOf(f *gguf.File, t gguf.TensorInfo) (uint64, error) {
	return checksum.Read(t.Bytes(), func(p []byte, off int64) error { return f.ReadTensorAt(p, t, off) })
}

// damaged returns the names of the tensors whose bytes differ from the record of the file. It calls progress with the bytes of each
// tensor that it read.
func damaged(ctx context.Context, f *gguf.File, progress func(int64)) (names []string, err error) {
	record, ok, err := Record(f)
	if err != nil {
		return nil, &safetensors.ContainerError{Path: f.Name(), Offset: -1, Problem: err.Error(), Fix: "write the file again"}
	}
	for i := 0; ok && i < len(f.Tensors); i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sum, err := ChecksumOf(f, f.Tensors[i])
		if err != nil {
			return nil, err
		}
		if sum != record.Tensors[i] {
			names = append(names, f.Tensors[i].Name)
		}
		progress(f.Tensors[i].Bytes())
	}
	return names, nil
}
