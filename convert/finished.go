package convert

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Made returns an error unless a checkpoint, which may be in an object store, is the result of a finished run of this plan: each file of
// weights has its record, and the other files are those of the plan. It reads the source, to compare it with the records, and
// quantizes nothing. The tensors of the checkpoint are not read. Of the options it uses Threads and Progress.
func (p *Plan) Made(ctx context.Context, c *hf.Checkpoint, o RunOptions) error {
	records, err := p.recordsOf(c)
	if err != nil {
		return err
	}
	plan, why := p.fingerprint(), ""
	for _, f := range p.files {
		if r, ok := records[f.name]; !ok || r.Plan != plan {
			why = f.name + " has other options, or no record"
			break
		}
	}
	if why == "" && !p.single {
		paths := map[string]string{}
		for _, o := range c.Others() {
			paths[o.Name] = o.Path
		}
		if p.config != nil && !bytes.Equal(c.Config, p.config) {
			why = hf.ConfigName + " differs"
		} else if why, err = p.unlikeOthers(func(name string) string { return paths[name] }); err != nil {
			return err
		}
	}
	if why == "" {
		if why, err = p.changedSource(ctx, records, o); err != nil {
			return err
		}
	}
	if why != "" {
		return because(ErrChanged, fmt.Errorf("%s: a complete checkpoint of another source or other options: %s", c.Path, why))
	}
	return nil
}

// recordsOf returns the records in a checkpoint's files of weights by the names that the plan has for them.
func (p *Plan) recordsOf(c *hf.Checkpoint) (records map[string]checksum.Record, err error) {
	records = map[string]checksum.Record{}
	add := func(name string, r checksum.Record, ok bool, failed error) {
		if p.single { // whatever the name of the result
			name = p.files[0].name
		}
		if ok {
			records[name] = r
		}
		err = cmp.Or(err, failed)
	}
	if c.GGUF != nil {
		for _, part := range c.GGUF.Parts() {
			r, ok, err := llamacpp.Record(part)
			add(path.Base(part.Name()), r, ok, err)
		}
		return records, err
	}
	for _, s := range c.Shards() {
		r, ok, err := checksum.RecordOf(s.File)
		add(s.Name, r, ok, err)
	}
	return records, err
}

// unlike returns the first difference between the checkpoint at a path and the finished result
// of the plan; "" if there is none. It compares
//
//	names, headers, configuration, index   with those of the plan
//	the fingerprint in every file          with that of the plan
//	auxiliary files                        with the source's, byte by byte
//	checksums of the source in the records with the source
//	checksums of the tensors               with their bytes
//	the first tiles of some weights        with newly converted ones, if the plan has the statistics that these take, and
//	                                       no training changes scales
func (p *Plan) unlike(ctx context.Context, path string, o RunOptions) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "it is unreadable", err
	}
	if info.IsDir() == p.single {
		return "it is a file instead of a directory, or vice versa", nil
	}
	at := func(name string) string {
		if p.single {
			return path
		}
		return filepath.Join(path, filepath.FromSlash(name))
	}
	if why := p.unlikeConfiguration(at); why != "" {
		return why, nil
	}
	if why, err := p.unlikeOthers(at); why != "" || err != nil {
		return why, err
	}
	plan, files, records := p.fingerprint(), map[string]*safetensors.File{}, map[string]checksum.Record{}
	for _, f := range p.files {
		file, err := f.layout.Open(at(f.name))
		if err != nil {
			if method, ok := methodOf(at(f.name)); ok && method != p.Method() {
				return fmt.Sprintf("%s has %s, and this run %s", f.name, methodText(method), methodText(p.Method())), nil
			}
			return fmt.Sprintf("%s has another header or size", f.name), nil
		}
		defer file.Close()
		record, err := checksum.ParseRecord(file.Filled())
		if err != nil || record.Plan != plan {
			return fmt.Sprintf("%s has other options or is not finished", f.name), nil
		}
		files[f.name], records[f.name] = file, record
	}
	for _, f := range p.files {
		file := files[f.name]
		err := checkSums(ctx, file.Tensors(), records[f.name].Tensors, o.Threads, func(t safetensors.TensorInfo) (string, uint64, error) {
			sum, err := checksum.OfTensor(file, t)
			return t.Name, sum, err
		})
		if errors.Is(err, ErrDamaged) {
			return fmt.Sprintf("%s is damaged: %v", f.name, err), nil
		} else if err != nil {
			return "", err
		}
	}
	if why, err := p.changedSource(ctx, records, o); why != "" || err != nil {
		return why, err
	}
	if p.lacksStatistics || p.distilled != "" {
		return "", nil
	}
	same, err := p.sameWeights(ctx, files, o.Threads)
	if err == nil && !same {
		return "its weights differ from those of this program", nil
	}
	return "", err
}

// methodOf returns the method in the metadata of a file of weights; ok is false if it has no header.
func methodOf(path string) (method string, ok bool) {
	f, err := safetensors.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	return f.Metadata()[checkpoint.MethodKey], true
}

// unlikeConfiguration compares the configuration and the index.
func (p *Plan) unlikeConfiguration(at func(name string) string) string {
	for name, data := range map[string][]byte{hf.ConfigName: p.config, safetensors.IndexName: p.index} {
		if data != nil && !p.single && !sameBytes(at(name), data) {
			return fmt.Sprintf("%s differs", name)
		}
	}
	return ""
}

// sameBytes reports whether a file has the content data.
func sameBytes(path string, data []byte) bool {
	got, err := limits.ReadFile(path, int64(len(data)))
	return err == nil && bytes.Equal(got, data)
}

// unlikeOthers compares the other files without weights.
func (p *Plan) unlikeOthers(at func(name string) string) (string, error) {
	if p.single {
		return "", nil
	}
	for _, f := range p.small {
		if !sameBytes(at(f.Name), f.Data) {
			return fmt.Sprintf("%s differs", f.Name), nil
		}
	}
	for _, o := range p.others() {
		source, err := fileSum(o.Path)
		if err != nil {
			return "", fmt.Errorf("%s: read the auxiliary file: %w", o.Name, err)
		}
		if got, err := fileSum(at(o.Name)); err != nil || got != source {
			return fmt.Sprintf("%s differs from the source", o.Name), nil
		}
	}
	return "", nil
}

// fileSum returns the checksum of a file.
func fileSum(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	sum, piece := checksum.New(info.Size()), make([]byte, 1<<20)
	for off := int64(0); ; {
		n, err := f.Read(piece)
		sum.Add(piece[:n], off)
		off += int64(n)
		if errors.Is(err, io.EOF) {
			return sum.Value(), nil
		} else if err != nil {
			return 0, err
		}
	}
}

// errDiffers is the error of a comparison.
var errDiffers = errors.New("other bytes are stored")

// A comparison is a target that compares the bytes with those of a file.
type comparison struct{ file *safetensors.File }

// WriteTensorAt returns errDiffers if the file has other bytes.
func (c comparison) WriteTensorAt(name string, p []byte, off int64) error {
	t, ok := c.file.Lookup(name)
	if !ok {
		return errDiffers
	}
	got := make([]byte, len(p))
	if err := c.file.ReadTensorAt(got, t, off); err != nil {
		return err
	}
	if string(got) != string(p) {
		return errDiffers
	}
	return nil
}

// compareWeights is the number of weights that are compared, the smallest ones.
const compareWeights = 8

// sameWeights reports whether the first tiles of some converted weights have the bytes that the
// plan would write.
func (p *Plan) sameWeights(ctx context.Context, files map[string]*safetensors.File, threads int) (bool, error) {
	r := newRun(p, RunOptions{Threads: threads})
	for name, f := range files {
		r.writers[name] = comparison{f}
	}
	for _, i := range p.smallest(compareWeights) {
		if err := r.sweepGroup(ctx, i); err != nil {
			return false, err
		}
		for t := range r.tiling(i).Tiles(i) {
			if _, err := r.work(t); errors.Is(err, errDiffers) {
				return false, nil
			} else if err != nil {
				return false, err
			}
			break
		}
	}
	return true, nil
}
