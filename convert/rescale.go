package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Rescale copies the checkpoint in the directory src, which Plan.Run wrote, to the new directory dst, with other bytes of some tensors and
// their checksums in the records of its files. Sizes do not change. The copy is durable. On error, dst may be incomplete.
func Rescale(dst, src string, tensors map[string][]byte) error {
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return err
	}
	source, err := hf.Open(dst)
	if err != nil {
		return err
	}
	defer source.Close()
	left := len(tensors)
	for _, shard := range source.Shards() {
		n, err := rescaleFile(filepath.Join(dst, shard.Name), shard.File, tensors)
		if err != nil {
			return fmt.Errorf("%s: %w", shard.Name, err)
		}
		left -= n
	}
	if left != 0 {
		return fmt.Errorf("%s: %d of %d tensors to replace are missing", src, left, len(tensors))
	}
	return filepath.WalkDir(dst, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return durable.SyncDir(path)
		case entry.Type().IsRegular():
			return syncFile(path)
		}
		return nil
	})
}

// syncFile makes the content of a file durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// rescaleFile replaces the tensors of a file, and returns their number.
func rescaleFile(path string, f *safetensors.File, tensors map[string][]byte) (replaced int, err error) {
	record, ok, err := checksum.RecordOf(f)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, errors.New("the file has no checksums: quantize again")
	}
	before := record.String()
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for i, info := range f.Tensors() {
		data, ok := tensors[info.Name]
		if !ok {
			continue
		}
		if info.Bytes() != int64(len(data)) {
			return replaced, fmt.Errorf("%s: got %d bytes, want %d", info.Name, len(data), info.Bytes())
		}
		if _, err := w.WriteAt(data, f.DataStart()+info.Begin); err != nil {
			return replaced, err
		}
		record.Tensors[i] = checksum.Of(data)
		replaced++
	}
	if replaced == 0 {
		return 0, nil
	}
	header := make([]byte, f.DataStart())
	if _, err := w.ReadAt(header, 0); err != nil {
		return replaced, err
	}
	at := bytes.Index(header, []byte(before))
	if at < 0 {
		return replaced, errors.New("the checksums are not where the header has them: quantize again")
	}
	if _, err := w.WriteAt([]byte(record.String()), int64(at)); err != nil {
		return replaced, err
	}
	return replaced, nil
}
