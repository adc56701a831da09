package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/ranges"
	"github.com/microscale-go/microscale/safetensors"
)

// A record is the object that completes the part of a worker. It has what package convert leaves in a part besides
// weights and auxiliary files, which have their final names in the folder already.
type record struct {
	Objects []sent            `json:"objects"`
	Files   map[string][]byte `json:"files"` // journal, configuration, index
}

// A sent is an object that a worker uploaded.
type sent struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  string `json:"crc64"`
}

// partName is the name of a record. In the stage, the directory of a part has the name of the checkpoint before it,
// as package convert calls it. Readers skip hidden files.
const partName = ".microscale-part-%d-of-%d"

// parsePart returns the worker and the number of workers in the name of a record.
func parsePart(name string) (worker, workers int, ok bool) {
	n, err := fmt.Sscanf(name, partName, &worker, &workers)
	return worker, workers, err == nil && n == 2 && 0 <= worker && worker < workers && fmt.Sprintf(partName, worker, workers) == name
}

// SetWorker makes d the destination of one of several workers.
func (d *Destination) SetWorker(worker, workers int) error {
	if d.Single() && workers > 0 {
		return fmt.Errorf("%s: one process writes a file: omit --shard, or use a folder as DST", d)
	}
	d.worker, d.workers = worker, workers
	return nil
}

// Part returns the destination of one of several parts, all of which one process uploads, one after the other. With Resume, a
// complete part is restored in the stage, as Admit does for a worker. With Force, it may be one of another plan.
func (d *Destination) Part(ctx context.Context, index, count int) (*Destination, error) {
	part := *d
	part.worker, part.workers, part.all = index, count, true
	present, err := d.present(ctx)
	if err != nil {
		return nil, err
	}
	return &part, part.admitPart(ctx, present)
}

// record returns the name of the record of the worker.
func (d *Destination) record() string { return fmt.Sprintf(partName, d.worker, d.workers) }

// Staged returns the path of what is uploaded.
func (d *Destination) Staged() string {
	if d.workers > 0 {
		return d.Stage() + d.record()
	}
	return d.Stage()
}

// Restored reports whether the stage is that of a complete part in the store.
func (d *Destination) Restored() bool { return d.restored }

// Discard removes the stage. A killed run leaves all of it or none: of a half, the next run would upload another part.
func (d *Destination) Discard() error {
	away := d.Staged() + ".discarded"
	d.restored = false
	if err := os.RemoveAll(away); err != nil {
		return err
	}
	if err := os.Rename(d.Staged(), away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(away)
}

// admitPart returns an error if a worker must not write its part beside the objects that are present. With Resume, a
// complete part is restored in the stage, so that the conversion has nothing to do.
func (d *Destination) admitPart(ctx context.Context, present []object) error {
	for _, o := range present {
		worker, workers, ok := parsePart(o.name)
		switch {
		case o.name == safetensors.IndexName || o.name == hf.ConfigName:
			if !d.Force && !d.all {
				return fmt.Errorf("%s: %w: the checkpoint is complete, or its merge was interrupted: use --force to replace it", d, fs.ErrExist)
			}
		case !ok:
		case worker == d.worker && workers == d.workers && d.Resume && (d.all || !d.Force):
			return d.restore(ctx, o)
		case d.Force:
		case workers != d.workers:
			return fmt.Errorf("%s: %w: a part of a run with %d workers is there: use another DST, or --force to replace it", d, fs.ErrExist, workers)
		case worker == d.worker:
			return fmt.Errorf("%s: %w: the part of worker %d of %d is there: use --resume to check it, or --force to replace it", d, fs.ErrExist,
				worker, workers)
		}
	}
	if d.Force && !d.all {
		return d.replaceable(ctx, present)
	}
	return nil
}

// restore writes the files of the worker's record to the stage, unless it has the part.
func (d *Destination) restore(ctx context.Context, o object) error {
	if _, err := os.Lstat(d.Staged()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r, err := d.read(ctx, o)
	if err != nil {
		return err
	}
	d.restored = true
	return r.write(d.Staged())
}

// read reads a record.
func (d *Destination) read(ctx context.Context, o object) (r record, err error) {
	data, err := d.at.content(ctx, d.at, o)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: not the record of a part: %w: run that worker again with --force", d.at.named(o.name), err)
	}
	return r, nil
}

// write writes the files of the record to a directory.
func (r record) write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, data := range r.Files {
		if name != filepath.Base(name) {
			return fmt.Errorf("%s: the file %.120q of a record is in another directory", dir, name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// uploadPart uploads the part of a worker, its record last.
func (d *Destination) uploadPart(ctx context.Context, progress func(done, total int64)) error {
	files, err := stagedFiles(d.Staged())
	if err != nil {
		return err
	}
	present, err := d.present(ctx)
	if err != nil {
		return err
	}
	r := record{Files: map[string][]byte{}}
	var data []staged
	for _, f := range files {
		if !f.commits() && !strings.HasPrefix(f.name, ".") {
			data = append(data, f)
			continue
		}
		if r.Files[f.name], err = os.ReadFile(f.path); err != nil {
			return err
		}
	}
	if at := slices.IndexFunc(present, func(o object) bool { return o.name == d.record() }); at >= 0 && len(data) == 0 &&
		(!d.Force || d.restored) {
		return d.checkPart(ctx, present[at])
	}
	if d.all && d.worker == 0 { // whose part has all other files: before anything is sent or removed
		if _, err := d.stale(files, d.beside(present), present); err != nil {
			return err
		}
	}
	existing, err := d.prepare(ctx, data, present)
	if err != nil {
		return err
	}
	for _, o := range present {
		if worker, workers, ok := parsePart(o.name); ok && d.Force && (workers != d.workers || worker == d.worker) {
			if err := d.remove(ctx, o.name); err != nil {
				return err
			}
			delete(existing, o.name)
		}
	}
	sums, err := d.putAll(ctx, data, existing, progress)
	if err != nil {
		return err
	}
	for i, f := range data {
		r.Objects = append(r.Objects, sent{f.name, f.size, sums[i]})
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = d.put(ctx, staged{name: d.record(), data: text, size: int64(len(text))}, existing[d.record()], &ranges.Progress{})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: worker %d of %d was run twice, and the other run was faster: its part counts", fs.ErrExist, d.worker, d.workers)
	}
	if err != nil {
		return ranges.About(d.at.named(d.record()), err)
	}
	return nil
}

// beside returns the names of the objects that are beside the files of worker 0, or may be: the other files of weights, and
// records.
func (d *Destination) beside(present []object) map[string]bool {
	names := map[string]bool{}
	for _, name := range d.Weights {
		names[name] = true
	}
	for _, o := range present {
		if _, _, ok := parsePart(o.name); ok {
			names[o.name] = true
		}
	}
	return names
}

// checkPart returns an error unless the store has all objects of the worker's record.
func (d *Destination) checkPart(ctx context.Context, o object) error {
	r, err := d.read(ctx, o)
	for _, u := range r.Objects {
		if err == nil {
			err = d.check(ctx, u, d.worker, d.workers)
		}
	}
	return err
}

// check returns an error unless the store has an object that a worker uploaded.
func (d *Destination) check(ctx context.Context, u sent, worker, workers int) error {
	same, err := d.at.has(ctx, path.Join(d.at.key, u.Name), u.Size, u.Sum)
	if err == nil && !same || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing or was replaced: run worker %d of %d again with --force", d.at.named(u.Name), worker, workers)
	}
	return err
}

// Parts are the parts that workers uploaded to a destination.
type Parts struct {
	// Complete says that an earlier merge made the checkpoint.
	Complete bool
	// Path is that of a local checkpoint, beside which are the records of the parts: for convert.Merge.
	Path string

	d       *Destination
	close   func() error // removes the temporary directory; nil: there is none
	names   []string     // of the records
	records []record     // by worker
}

// Parts returns the parts. All must be there, of one run. The caller closes them.
func (d *Destination) Parts(ctx context.Context) (*Parts, error) {
	present, err := d.present(ctx)
	if err != nil {
		return nil, err
	}
	p := &Parts{d: d}
	found := map[int]object{}
	for _, o := range present {
		worker, workers, ok := parsePart(o.name)
		switch {
		case !ok:
			continue
		case d.workers != 0 && workers != d.workers:
			return nil, fmt.Errorf("%s: parts of several runs, with %d and with %d workers: remove the objects "+partName+" … of one", d, d.workers,
				workers, 0, workers)
		}
		d.workers, found[worker] = workers, o
		p.names = append(p.names, o.name)
	}
	if len(found) == 0 || len(found) < d.workers {
		if p.Complete = d.complete(ctx); p.Complete { // a merge was ended while it removed the records
			return p, p.remove(ctx)
		}
		return nil, d.missing(found)
	}
	dir, remove, err := durable.Temp(temporary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: records of parts need a directory for temporary files", d, err)
	}
	p.close = remove
	p.Path = filepath.Join(dir, path.Base(d.at.key))
	for worker := range d.workers {
		r, err := d.read(ctx, found[worker])
		if err == nil {
			err = r.write(p.Path + found[worker].name)
		}
		if errors.Is(err, fs.ErrNotExist) && d.complete(ctx) { // another merge was faster
			return &Parts{Complete: true}, p.Close()
		}
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.records = append(p.records, r)
	}
	return p, nil
}

// complete reports whether the store has the whole checkpoint.
func (d *Destination) complete(ctx context.Context) bool {
	c, err := d.at.openFolder(ctx, d.at)
	return err == nil && c.Close() == nil
}

// missing returns the error that names the parts which are not there.
func (d *Destination) missing(found map[int]object) error {
	const most = 8
	var names []string
	for worker := range d.workers {
		if _, ok := found[worker]; ok {
			continue
		}
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, strconv.Itoa(worker))
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: %w: no part is there: run the workers with --shard I/N first", d, fs.ErrNotExist)
	}
	return fmt.Errorf("%s: %d of %d parts are there, those of workers %s are missing: run these, or wait for them", d, len(found), d.workers,
		strings.Join(names, ", "))
}

// Check returns an error unless a file is in the store as its worker uploaded it. size is −1 if it is not known.
func (p *Parts) Check(ctx context.Context, worker int, name string, size int64) error {
	objects := p.records[worker].Objects
	at := slices.IndexFunc(objects, func(u sent) bool { return u.Name == name && (size < 0 || u.Size == size) })
	if at < 0 {
		return fmt.Errorf("%s is not in the record of worker %d of %d: run that worker again with --force", p.d.at.named(name), worker,
			p.d.workers)
	}
	return p.d.check(ctx, objects[at], worker, p.d.workers)
}

// Publish uploads the files of the local checkpoint, the index last, and removes the records.
func (p *Parts) Publish(ctx context.Context) error {
	files, err := stagedFiles(p.Path)
	if err != nil {
		return err
	}
	beside := map[string]bool{}
	for _, name := range p.names {
		beside[name] = true
	}
	for _, r := range p.records {
		for _, u := range r.Objects {
			beside[u.Name] = true
		}
	}
	if err := p.d.publish(ctx, files, beside, func(_, _ int64) {}); err != nil {
		return err
	}
	return p.remove(ctx)
}

// remove removes the records.
func (p *Parts) remove(ctx context.Context) (err error) {
	for _, name := range p.names {
		err = cmp.Or(err, p.d.remove(ctx, name))
	}
	return err
}

// Close removes the temporary directory.
func (p *Parts) Close() error {
	if p.close == nil {
		return nil
	}
	return p.close()
}

// Renamed replaces the local paths in an error by the URL.
func (p *Parts) Renamed(err error) error {
	if err == nil || p.Path == "" {
		return err
	}
	return &renamedError{err, strings.ReplaceAll(err.Error(), p.Path, p.d.String())}
}

// A renamedError is an error with another text.
type renamedError struct {
	error
	text string
}

// Error returns the text.
func (e *renamedError) Error() string { return e.text }

// Unwrap returns the error.
func (e *renamedError) Unwrap() error { return e.error }
