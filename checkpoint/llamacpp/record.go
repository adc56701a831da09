package llamacpp

import (
	"context"
	"fmt"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Record returns the record in the metadata of a GGUF file. ok is false if there is none.
func Record(f *gguf.File) (r checksum.Record, ok bool, err error) {
	text, ok := f.Value(checksum.RecordKey).(string)
	if !ok {
		return checksum.Record{}, false, nil
	}
	if r, err = checksum.ParseRecord(text); err == nil && len(r.Tensors) != len(f.Tensors) {
		err = fmt.Errorf("the record is of %d tensors, and the file has %d", len(r.Tensors), len(f.Tensors))
	}
	return r, true, err
}

// ChecksumOf reads a tensor of a GGUF file and returns its checksum.
func ChecksumOf(f *gguf.File, t gguf.TensorInfo) (uint64, error) {
	return checksum.Read(t.Bytes(), func(p []byte, off int64) error { return f.ReadTensorAt(p, t, off) })
}

// damaged returns the names of the tensors whose bytes differ from the record of the file at
// path. It calls progress with the bytes of each tensor that it read.
func damaged(ctx context.Context, f *gguf.File, path string, progress func(int64)) (names []string, err error) {
	record, ok, err := Record(f)
	if err != nil {
		return nil, &safetensors.ContainerError{Path: path, Offset: -1, Problem: err.Error(), Fix: "write the file again"}
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
