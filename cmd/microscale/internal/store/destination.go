package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/crc64nvme"
	"github.com/minio/minio-go/v7"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// A Destination is a folder of a store, or one object, that a checkpoint is uploaded to from a local stage.
//
// Objects appear when they are complete. Weights are first, config.json and the index last, so that readers find no
// checkpoint before it is whole. The metadata of each object has the CRC-64 of its content, by which another upload
// of the same stage finds what is done.
type Destination struct {
	at *s3
	// Force replaces the checkpoint that is there.
	Force bool
	// Resume continues an upload that ended early.
	Resume bool
	// Weights are the names of all files of weights, for parts of one process.
	Weights []string

	worker, workers int      // of workers, who upload parts; 0: one process uploads everything
	all             bool     // one process is every worker
	restored        bool     // the stage is that of a complete part
	found           []object // by Admit
	part            int64    // smallest part of an upload in bytes; 0: smallestPart
}

// stageSuffix ends the name of the local directory that contains the stage.
const stageSuffix = ".microscale-staged"

// sumKey is the key of the CRC-64 in the metadata of an object.
const sumKey = "Microscale-Crc64"

// OpenDestination returns the destination that a URL names.
func OpenDestination(ctx context.Context, address string) (*Destination, error) {
	return opener{}.destination(ctx, address)
}

func (o opener) destination(ctx context.Context, address string) (*Destination, error) {
	at, err := o.place(ctx, address)
	if err != nil {
		return nil, err
	}
	s, ok := at.(*s3)
	if !ok {
		return nil, fmt.Errorf("%s: web servers are only read: want a DST such as s3://BUCKET/FOLDER or gs://BUCKET/FOLDER", at)
	}
	if s.key == "" {
		return nil, fmt.Errorf("%s: a bucket, and no folder in it: want %s/FOLDER", at, at)
	}
	return &Destination{at: s}, nil
}

// String returns the URL.
func (d *Destination) String() string { return d.at.url }

// Stage returns the path of the local checkpoint that is uploaded, in a separate directory in the working directory, whose
// name has a hash of the URL.
func (d *Destination) Stage() string {
	name, sum := path.Base(d.at.key), sha256.Sum256([]byte(d.at.url))
	return filepath.Join(fmt.Sprintf("%s-%x%s", name, sum[:4], stageSuffix), name)
}

// Single reports whether the destination is one object.
func (d *Destination) Single() bool {
	return isWeights(d.at.key)
}

// Reads returns an error if the destination is in the folder that a source is read from, or around it.
func (d *Destination) Reads(source string) error {
	a, b := strings.TrimRight(source, "/")+"/", d.at.url+"/"
	if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		return fmt.Errorf("%s: SRC is there, too: use another DST", d)
	}
	return nil
}

// Admit returns an error if the store has no such bucket, or objects at the destination that must stay.
func (d *Destination) Admit(ctx context.Context) (err error) {
	if d.found, err = d.present(ctx); err != nil {
		return err
	}
	return d.admit(ctx, d.found)
}

// admit is Admit by the objects that are present.
func (d *Destination) admit(ctx context.Context, present []object) error {
	switch {
	case len(present) == 0:
		return nil
	case d.workers > 0:
		return d.admitPart(ctx, present)
	case d.Resume:
		return nil
	case !d.Force:
		return fmt.Errorf("%s: %w (objects: %d): use --force to replace a checkpoint, or --resume to continue an upload that ended early", d,
			fs.ErrExist, len(present))
	}
	return d.replaceable(ctx, present)
}

// probeName ends the key of an object whose upload is begun, and given up, to learn whether the store permits it.
const probeName = ".microscale-probe"

// probe returns the key of the object. Of one file it is its own, or, where an upload could not be given up, one that begins with it:
// credentials may be limited to that.
func (d *Destination) probe() string {
	switch {
	case !d.Single():
		return path.Join(d.at.key, probeName)
	case d.at.whole:
		return d.at.key + probeName
	}
	return d.at.key
}

// Writable returns an error unless the store permits uploads. Nothing is uploaded: an upload in parts is begun and given up, or, where
// uploads have no parts, a condition is named that no object meets. If a server ignores that, the empty object is removed.
func (d *Destination) Writable(ctx context.Context) error {
	key := d.probe()
	return d.at.try(ctx, d.at.url, func() error {
		if !d.at.whole {
			id, err := d.at.core.NewMultipartUpload(ctx, d.at.bucket, key, minio.PutObjectOptions{})
			if err == nil {
				_ = d.at.core.AbortMultipartUpload(ctx, d.at.bucket, key, id) // where that is not permitted, it stays
				return nil
			}
			return d.at.failed(err)
		}
		var never minio.PutObjectOptions
		never.SetMatchETag(impossible)
		_, err := d.at.core.PutObject(ctx, d.at.bucket, key, bytes.NewReader(nil), 0, "", "", never)
		if err == nil {
			err = d.at.core.Client.RemoveObject(ctx, d.at.bucket, key, minio.RemoveObjectOptions{})
		}
		if err = d.at.failed(err); errors.Is(err, errChanged) {
			return nil
		}
		return err
	})
}

// Fits returns an error if an object at the destination would stay beside the files of the result, given by their names. complete reports
// whether the destination has all of them. Of a single file, the name is "".
func (d *Destination) Fits(names []string) (complete bool, err error) {
	var files []staged
	for _, name := range names {
		files = append(files, staged{name: name})
	}
	if _, err := d.stale(files, d.beside(d.found), d.found); err != nil {
		return false, err
	}
	has := map[string]bool{}
	for _, o := range d.found {
		if _, _, part := parsePart(o.name); part {
			return false, nil
		}
		has[o.name] = true
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !has[name] }), nil
}

// replaceable returns an error unless one of the objects has weights, by its name and its beginning.
func (d *Destination) replaceable(ctx context.Context, present []object) error {
	for _, o := range present {
		if !d.Single() && !isWeights(o.name) {
			continue
		}
		const enough = 16
		head := make([]byte, min(o.size, enough))
		if _, err := d.at.reader(ctx, d.at, o, ranges.NewChunks()).ReadAt(head, 0); err != nil {
			return err
		}
		if limits.HasWeights(bytes.NewReader(head), o.size) {
			return nil
		}
	}
	return fmt.Errorf("%s: its files (%d) have no weights: --force replaces only checkpoints; use another DST", d, len(present))
}

// isWeights reports whether an object has weights, by its name.
func isWeights(name string) bool {
	return strings.HasSuffix(name, safetensors.Suffix) || gguf.Named(name)
}

// present returns the objects at the destination. That of a killed Writable is none.
func (d *Destination) present(ctx context.Context) ([]object, error) {
	if !d.Single() {
		objects, err := d.at.list(ctx)
		return slices.DeleteFunc(objects, func(o object) bool { return o.name == probeName }), err
	}
	o, err := d.at.stat(ctx)
	switch {
	case err == nil:
		return []object{o}, nil
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoBucket): // the answer to HEAD does not tell whether there is a bucket
		_, err = d.at.list(ctx)
	}
	return nil, err
}

// A staged is a file of the stage.
type staged struct {
	name, path string // name: in the folder of the destination; "" if that is one object
	size       int64
	data       []byte // the content, if there is no path
}

// A content is what is uploaded.
type content interface {
	io.ReaderAt
	io.Closer
}

// open opens the file.
func (f staged) open() (content, error) {
	if f.path == "" {
		return struct {
			io.ReaderAt
			io.Closer
		}{bytes.NewReader(f.data), io.NopCloser(nil)}, nil
	}
	return os.Open(f.path)
}

// rank orders uploads: weights, other files, the configuration, the index.
func (f staged) rank() int {
	switch {
	case isWeights(f.name) || f.name == "":
		return 0
	case f.name == safetensors.IndexName:
		return 3
	case f.name == hf.ConfigName:
		return 2
	}
	return 1
}

// commits reports whether the file makes the others a checkpoint.
func (f staged) commits() bool { return f.name == safetensors.IndexName || f.name == hf.ConfigName }

// stagedFiles returns the files of a stage in the order of their upload.
func stagedFiles(stage string) (files []staged, err error) {
	err = filepath.WalkDir(stage, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(stage, at)
		if name == "." {
			name = ""
		}
		files = append(files, staged{name: filepath.ToSlash(name), path: at, size: info.Size()})
		return err
	})
	slices.SortStableFunc(files, func(a, b staged) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.name, b.name)) })
	return files, err
}

// Upload uploads the stage. progress gets the bytes that are done and those of all files. If an upload fails or ctx
// ends, no index or config.json of the new checkpoint is there unless all its other files are; repeat it with Resume.
// A worker uploads its part.
func (d *Destination) Upload(ctx context.Context, progress func(done, total int64)) error {
	if d.workers > 0 {
		return d.uploadPart(ctx, progress)
	}
	files, err := stagedFiles(d.Stage())
	if err != nil {
		return err
	}
	return d.publish(ctx, files, nil, progress)
}

// publish uploads the files of a checkpoint beside those that workers uploaded, and removes the weights of an earlier
// one.
func (d *Destination) publish(ctx context.Context, files []staged, beside map[string]bool, progress func(done, total int64)) error {
	present, err := d.present(ctx)
	if err != nil {
		return err
	}
	stale, err := d.stale(files, beside, present)
	if err != nil {
		return err
	}
	existing, err := d.prepare(ctx, files, present)
	if err != nil {
		return err
	}
	if _, err := d.putAll(ctx, files, existing, progress); err != nil {
		return err
	}
	for _, name := range stale {
		if err := d.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// prepare removes, with Force, what makes the old files a checkpoint, and ends uploads that an earlier run left. It
// returns the names of the objects that stay.
func (d *Destination) prepare(ctx context.Context, files []staged, present []object) (existing map[string]bool, err error) {
	existing = map[string]bool{}
	for _, o := range present {
		existing[o.name] = true
	}
	if d.Force {
		for _, name := range []string{safetensors.IndexName, hf.ConfigName} {
			if existing[name] {
				if err := d.remove(ctx, name); err != nil {
					return nil, err
				}
				delete(existing, name)
			}
		}
	}
	if d.Force || d.Resume {
		d.abandon(ctx, files)
	}
	return existing, nil
}

// putAll uploads files in their order, and returns their CRC-64.
func (d *Destination) putAll(ctx context.Context, files []staged, existing map[string]bool,
	progress func(done, total int64)) (sums []string, err error) {
	counted := ranges.Progress{Report: progress}
	for _, f := range files {
		counted.Total += f.size
	}
	sums = make([]string, len(files))
	for i, f := range files {
		sums[i], err = d.put(ctx, f, existing[f.name], &counted)
		if err != nil {
			return nil, ranges.About(d.at.named(f.name), err)
		}
	}
	return sums, nil
}

// stale returns the weights of an earlier checkpoint that the new one does not replace. It is an error if other files
// would stay beside the new ones.
func (d *Destination) stale(files []staged, beside map[string]bool, present []object) (names []string, err error) {
	for _, o := range present {
		if beside[o.name] || slices.ContainsFunc(files, func(f staged) bool { return f.name == o.name }) {
			continue
		}
		if !d.Force || !isWeights(o.name) {
			return nil, fmt.Errorf("%s: %w, and the new checkpoint has no such file: remove it, or use another DST", d.at.named(o.name), fs.ErrExist)
		}
		names = append(names, o.name)
	}
	return names, nil
}

// abandon ends the uploads of files that an earlier run left, since their parts cost money. Where that is not permitted, they stay.
func (d *Destination) abandon(ctx context.Context, files []staged) {
	for up := range d.at.core.Client.ListIncompleteUploads(ctx, d.at.bucket, d.at.key, true) {
		if up.Err == nil && (up.Key == d.probe() ||
			slices.ContainsFunc(files, func(f staged) bool { return path.Join(d.at.key, f.name) == up.Key })) {
			_ = d.at.core.AbortMultipartUpload(ctx, d.at.bucket, up.Key, up.UploadID)
		}
	}
}

// remove removes an object.
func (d *Destination) remove(ctx context.Context, name string) error {
	return d.at.try(ctx, d.at.named(name), func() error {
		if err := d.at.core.Client.RemoveObject(ctx, d.at.bucket, path.Join(d.at.key, name), minio.RemoveObjectOptions{}); err != nil {
			return d.at.failed(err)
		}
		return nil
	})
}

// put uploads a file, unless the store has it, and returns its CRC-64. Without Force it replaces nothing.
func (d *Destination) put(ctx context.Context, f staged, exists bool, progress *ranges.Progress) (sum string, err error) {
	file, err := f.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	h := crc64nvme.New()
	if err := ranges.Hash(ctx, h, file, f.size); err != nil {
		return "", err
	}
	sum, key := fmt.Sprintf("%016x", h.Sum64()), path.Join(d.at.key, f.name)
	if exists {
		same, err := d.at.has(ctx, key, f.size, sum)
		switch {
		case err != nil:
			return "", err
		case same:
			progress.Add(f.size)
			return sum, nil
		case !d.Force:
			return "", fmt.Errorf("%w with other content: use --force to replace the checkpoint", fs.ErrExist)
		}
	}
	return sum, d.at.send(ctx, sending{key: key, file: file, size: f.size, sum: sum, replace: exists, progress: progress,
		part: max(cmp.Or(d.part, smallestPart), (f.size/mostSent>>20+1)<<20)})
}
