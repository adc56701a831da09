package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// An output is an incomplete result: a directory beside the destination, under another name. A
// killed run leaves this directory, which no client accepts as a checkpoint. The next run to
// the same destination resumes or removes it.
//
//	DST.microscale-partial      the files that are written, locked against other runs
//	DST.microscale-part-I-of-N  the same for one of N workers
//	DST.microscale-replaced     an earlier directory DST, while a forced run replaces it
//
// One rename replaces an earlier file DST, so that either the old or the new one exists. A
// directory needs two renames; a run that is killed between them leaves the earlier directory
// under the last name, and the next run to the same destination moves it back.
type output struct {
	final    string   // DST
	single   bool     // DST is a file
	partial  string   // the directory for the files
	replaced string   // the new name of an earlier directory until it is removed
	replace  bool     // there is an earlier DST
	parents  []string // directories that were created for DST, innermost first
	finished bool     // every file is written and closed
	force    bool     // an earlier checkpoint DST may be replaced
	lock     *durable.Lock
	writers  []*safetensors.Writer
	part     bool            // partial belongs to a worker, and keeps its name
	names    map[string]bool // slash-separated paths of the files in partial
	warnings []string
	closed   func() error            // called when all files are closed; may be nil
	remove   func(path string) error // removeDir
}

// Suffixes of the names beside DST while it is written and replaced.
const (
	partialSuffix  = ".microscale-partial"
	replacedSuffix = ".microscale-replaced"
	partSuffix     = ".microscale-part-"
)

// markerName is the name of the journal in the partial directory, the first file that is created
// there and the last that is removed. It identifies the files of a killed run; a directory of
// the same name without it is left alone.
const markerName = ".microscale"

// outputAt returns the output of a plan at a destination. It creates nothing.
func (p *Plan) outputAt(final string) *output {
	final = filepath.Clean(final)
	partial := final + partialSuffix
	if p.worker.Count > 0 {
		partial = partDir(final, p.worker.Index, p.worker.Count)
	}
	return &output{final: final, single: p.single, part: p.worker.Count > 0, partial: partial, replaced: final + replacedSuffix,
		names: p.names(), remove: removeDir}
}

// newOutput creates and locks the partial directory. The destination must not exist, unless
// force is set and it is a checkpoint.
func (p *Plan) newOutput(final string, options RunOptions) (*output, error) {
	if err := errors.Join(p.admitName(final), p.admitLinks()); err != nil {
		return nil, err
	}
	o := p.outputAt(final)
	o.force = options.Force
	final = o.final
	if err := o.admit(p); err != nil {
		return nil, err
	}
	o.parents = missing(filepath.Dir(final))
	if err := os.MkdirAll(filepath.Dir(final), 0o777); err != nil {
		o.removeParents()
		return nil, durable.CannotWrite(filepath.Dir(final), err)
	}
	if err := os.Mkdir(o.partial, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		o.removeParents()
		return nil, durable.CannotWrite(filepath.Dir(final), err)
	}
	if err := o.claim(); err != nil {
		return nil, err
	}
	err := o.restore(options.Resume)
	if err == nil {
		err = o.admit(p) // another run may have finished meanwhile
	}
	if err == nil {
		err = o.mark()
	}
	if err == nil {
		_ = o.syncNames() // if it fails, a power failure may lose the whole run
	}
	if err != nil {
		o.removePartial()
		o.removeParents()
		o.unlock()
		return nil, err
	}
	return o, nil
}

// missing returns the directories of a path that do not exist, innermost first.
func missing(dir string) (folders []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return folders
		}
		folders = append(folders, dir)
		dir = filepath.Dir(dir)
	}
}

// removeParents removes the directories that were created for the destination, if they are
// empty.
func (o *output) removeParents() {
	for _, dir := range o.parents {
		_ = os.Remove(dir)
	}
}

// removePartial removes the partial directory if it is empty and not a link.
func (o *output) removePartial() {
	if info, err := os.Lstat(o.partial); err == nil && info.IsDir() {
		_ = os.Remove(o.partial)
	}
}

// claim locks the partial directory.
func (o *output) claim() error {
	var err error
	switch o.lock, err = durable.Dir(o.partial); {
	case errors.Is(err, durable.ErrHeld), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: another run is writing to it (%s is locked): wait for it, or choose another destination", o.final, o.partial)
	case err != nil:
		o.removePartial()
		o.removeParents()
		return durable.CannotWrite(filepath.Dir(o.final), err)
	}
	return nil
}

// restore cleans up after a killed run: it removes the files of that run, unless this one
// resumes it, and moves back an earlier directory that the run was replacing.
func (o *output) restore(resume bool) error {
	if err := o.own(); err != nil {
		return err
	}
	if !resume {
		if o.unfinished() {
			o.warnings = append(o.warnings, fmt.Sprintf("%s: the files of an unfinished run, which could have been resumed, were removed",
				o.partial))
		}
		if err := o.clear(); err != nil {
			return err
		}
	}
	if o.single {
		return nil
	}
	_, err := os.Lstat(o.final)
	if _, old := os.Lstat(o.replaced); old != nil || !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return durable.RenameNew(o.replaced, o.final)
}

// removeDir removes a directory, its journal last: if that fails, the journal still identifies
// the directory.
func removeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != markerName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// clear removes the files of a killed run from the partial directory, the marker last.
func (o *output) clear() error {
	if err := o.own(); err != nil {
		return err
	}
	entries, err := os.ReadDir(o.partial)
	for _, e := range entries {
		if e.Name() != markerName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.partial, e.Name())))
		}
	}
	if err == nil {
		err = os.RemoveAll(o.path(markerName))
	}
	if err != nil {
		return fmt.Errorf("%s: remove the files of an earlier run: %w", o.partial, err)
	}
	return nil
}

// path returns the path of a file in the partial directory.
func (o *output) path(name string) string { return filepath.Join(o.partial, filepath.FromSlash(name)) }

// unfinished reports whether an earlier run did some of the work, but not all.
func (o *output) unfinished() bool {
	records, _, _ := readJournal(o.path(markerName)) // an unreadable journal is removed
	return len(records) > 1 && !records[len(records)-1].Complete
}

// mark creates the marker, an empty journal, if it does not exist.
func (o *output) mark() error {
	f, err := openOwn(o.path(markerName))
	if err != nil {
		return err
	}
	return f.Close()
}

// create creates a file of weights.
func (o *output) create(f file) (*safetensors.Writer, error) { return o.add(f, safetensors.Create) }

// reopen opens a file of weights of an earlier run.
func (o *output) reopen(f file) (*safetensors.Writer, error) { return o.add(f, safetensors.Reopen) }

func (o *output) add(f file, open func(string, *safetensors.Layout) (*safetensors.Writer, error)) (*safetensors.Writer, error) {
	w, err := open(o.fileOf(f), f.layout)
	if err == nil {
		o.writers = append(o.writers, w)
	}
	return w, err
}

// fileOf returns the path of a file of weights in the partial directory.
func (o *output) fileOf(f file) string {
	if o.single {
		return o.path(singleName)
	}
	return o.path(f.name)
}

// writeFile writes a small file of the result.
func (o *output) writeFile(name string, data []byte) error {
	return o.fill(name, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// copyFile copies an auxiliary file of the source and returns its checksum.
func (o *output) copyFile(ctx context.Context, other hf.Other) (uint64, error) {
	in, err := os.Open(other.Path)
	if err != nil {
		return 0, fmt.Errorf("%s: copy the auxiliary file: %w", other.Name, err)
	}
	defer in.Close()
	sum, off, piece := checksum.New(other.Size), int64(0), make([]byte, 1<<20)
	err = o.fill(other.Name, func(w io.Writer) error {
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := in.Read(piece)
			sum.Add(piece[:n], off)
			off += int64(n)
			if _, err := w.Write(piece[:n]); err != nil {
				return err
			}
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	if err == nil && off != other.Size {
		err = because(ErrChanged, fmt.Errorf("%s: the file changed while it was read: run again when nothing writes to it", other.Path))
	}
	return sum.Value(), err
}

// fill creates a small file of the result. It follows no link that leads out of the partial
// directory.
func (o *output) fill(name string, write func(io.Writer) error) error {
	path, local := o.path(name), filepath.FromSlash(name)
	root, err := os.OpenRoot(o.partial)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(local), 0o777); err != nil {
		return err
	}
	if err := root.Remove(local); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(local, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	err = write(f)
	err = errors.Join(err, f.Sync(), f.Close())
	for dir := filepath.Dir(path); err == nil && dir != o.partial; dir = filepath.Dir(dir) {
		err = durable.SyncDir(dir) // commit syncs the directory itself
	}
	return err
}

// commit completes the files and gives the result its name. On error, the destination is
// unchanged. Failures after the rename are warnings.
func (o *output) commit() (warnings []string, err error) {
	for _, w := range o.writers {
		if err := w.Close(); err != nil {
			return nil, err
		}
	}
	if err := durable.SyncDir(o.partial); err != nil {
		return nil, err
	}
	if o.closed != nil {
		if err := o.closed(); err != nil {
			return nil, err
		}
	}
	if o.part {
		o.unlock()
		return nil, nil
	}
	if err := o.name(); err != nil {
		return nil, err
	}
	return o.tidy(), nil
}

// tidy removes the other files beside a committed result. It releases the lock last, so that no
// run starts in a directory that is being removed.
func (o *output) tidy() (warnings []string) {
	defer o.unlock()
	o.unmark()
	if err := o.syncNames(); err != nil {
		warnings = append(warnings, fmt.Sprintf("%s is complete, but a power failure may undo its rename: %v", o.final, err))
	}
	left := o.replaced
	if o.single {
		left = o.partial
	}
	if err := o.remove(left); err != nil {
		warnings = append(warnings, fmt.Sprintf("%s is complete, but %s could not be removed: remove it yourself (%v)", o.final, left, err))
	}
	return warnings
}

// dropPartial removes the partial directory of killed runs of the same plan, once the result is
// complete.
func (o *output) dropPartial(plan string) {
	records, _, err := readJournal(o.path(markerName))
	if len(records) > 0 && (records[0].Begin == nil || records[0].Begin.Plan != plan) {
		return // of another result
	}
	if _, missing := os.Lstat(o.partial); err == nil && missing == nil && !o.part && o.own() == nil && o.claim() == nil {
		o.abort()
	}
}

// leftover removes the journal of a run that was killed after its rename. It reports an earlier
// directory that the result replaced.
func (o *output) leftover() (warnings []string) {
	o.unmark()
	if _, err := os.Lstat(o.replaced); err == nil {
		warnings = append(warnings, fmt.Sprintf("%s is complete, but %s, which it replaced, still exists: remove it yourself", o.final,
			o.replaced))
	}
	return warnings
}

// singleName is the name of a single-file result in the partial directory.
const singleName = "single" + safetensors.Suffix

// abort removes what was written.
func (o *output) abort() {
	for _, w := range o.writers {
		_ = w.Abort() // the directory is removed anyway
	}
	_ = o.clear() // the next run removes the rest
	o.removePartial()
	o.removeParents()
	o.unlock()
}

// suspend keeps the written files for a run that resumes.
func (o *output) suspend() {
	for _, w := range o.writers {
		_ = w.Suspend() // everything in the journal is on the disk
	}
	o.unlock()
}

func (o *output) unlock() {
	if o.lock != nil {
		_ = o.lock.Close() // nothing was written through it
		o.lock = nil
	}
}

// syncNames makes the names of the destination and of the directories created for it durable.
func (o *output) syncNames() error {
	err := durable.SyncDir(filepath.Dir(o.final))
	for _, dir := range o.parents {
		err = errors.Join(err, durable.SyncDir(filepath.Dir(dir)))
	}
	return err
}
