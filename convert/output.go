package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/internal/lock"
	"github.com/microscale-go/microscale/safetensors"
)

// An output is a result on its way: a directory beside the destination, under
// another name until everything in it is whole. A run that is killed leaves that
// directory behind, which no client takes for a checkpoint, and the next run to
// the same destination removes it.
//
//	DST.microscale-partial     what is written, locked against other runs
//	DST.microscale-part-I-of-N the same of one of N workers
//	DST.microscale-replaced    an earlier directory DST that --force replaces, from
//	                           its renaming to that of the new one and its removal
//
// An earlier file DST is replaced by one renaming, and there is always one or
// the other. Of directories none is there for a moment; a run that is killed in
// it leaves the earlier one under the second name, and the next run to the same
// destination puts it back.
type output struct {
	final    string   // DST
	single   bool     // DST is a file
	partial  string   // the directory that is written
	replaced string   // where an earlier directory is until it is removed
	replace  bool     // there is an earlier DST
	parents  []string // folders that were made for DST, the innermost first
	finished bool     // every file is written and closed
	force    bool     // an earlier checkpoint DST may be replaced
	lock     *lock.Lock
	writers  []*safetensors.Writer
	part     bool            // partial is a worker's, and stays when it is whole
	names    map[string]bool // paths of the files in partial, with slashes
	warnings []string
	whole    func() error            // called when all files are closed; may be nil
	remove   func(path string) error // removeDir
}

// Suffixes of the names that stand beside DST while it is written and replaced.
const (
	partialSuffix  = ".microscale-partial"
	replacedSuffix = ".microscale-replaced"
	partSuffix     = ".microscale-part-"
)

// markerName is the name of the journal in the partial directory, the first file
// that is made there and the last that is removed. What a killed run left is
// known by it, and a folder of somebody else that bears the name is not touched.
const markerName = ".microscale"

// outputAt returns the output of a plan at a destination, before anything is made.
func (p *Plan) outputAt(final string) *output {
	final = filepath.Clean(final)
	partial := final + partialSuffix
	if p.worker.Count > 0 {
		partial = partDir(final, p.worker.Index, p.worker.Count)
	}
	return &output{final: final, single: p.single, part: p.worker.Count > 0, partial: partial, replaced: final + replacedSuffix, names: p.names(), remove: removeDir}
}

// newOutput prepares the directory. The destination must not exist, unless
// force is given and it is a checkpoint.
func (p *Plan) newOutput(final string, options RunOptions) (*output, error) {
	source, o := p.Source.Source, p.outputAt(final)
	o.force = options.Force
	final = o.final
	if err := o.admit(source); err != nil {
		return nil, err
	}
	o.parents = missing(filepath.Dir(final))
	if err := os.MkdirAll(filepath.Dir(final), 0o777); err != nil {
		o.removeParents()
		return nil, cannotWrite(filepath.Dir(final), err)
	}
	if err := os.Mkdir(o.partial, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		o.removeParents()
		return nil, cannotWrite(filepath.Dir(final), err)
	}
	if err := o.claim(); err != nil {
		return nil, err
	}
	err := o.restore(options.Resume)
	if err == nil {
		err = o.admit(source) // another run may have ended meanwhile
	}
	if err == nil {
		err = o.mark()
	}
	if err == nil {
		_ = o.syncNames() // where that fails, a power failure may cost more than the work since the last record
	}
	if err != nil {
		o.removePartial()
		o.removeParents()
		o.unlock()
		return nil, err
	}
	return o, nil
}

// cannotWrite says that a folder does not take the result.
func cannotWrite(folder string, err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err // its path is that of a file in the folder
	}
	return fmt.Errorf("%s: this folder cannot be written (%w): choose a destination elsewhere", folder, err)
}

// missing returns the folders of a path that do not exist, the innermost first.
func missing(dir string) (folders []string) {
	for {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return folders
		}
		folders = append(folders, dir)
		dir = filepath.Dir(dir)
	}
}

// removeParents removes the folders that were made for the destination, unless
// something is in them.
func (o *output) removeParents() {
	for _, dir := range o.parents {
		_ = os.Remove(dir)
	}
}

// removePartial removes the partial directory, unless something is in it or it is a link.
func (o *output) removePartial() {
	if info, err := os.Lstat(o.partial); err == nil && info.IsDir() {
		_ = os.Remove(o.partial)
	}
}

// claim locks the partial directory.
func (o *output) claim() error {
	var err error
	switch o.lock, err = lock.Dir(o.partial); {
	case errors.Is(err, lock.ErrHeld), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: another run is writing to it (%s is locked): wait for it, or choose another destination", o.final, o.partial)
	case err != nil:
		o.removePartial()
		o.removeParents()
		return cannotWrite(filepath.Dir(o.final), err)
	}
	return nil
}

// restore undoes what a killed run left: it removes the files that the run wrote,
// unless this one resumes it, and moves back an earlier directory that the run had
// moved away and not yet replaced.
func (o *output) restore(resume bool) error {
	if err := o.own(); err != nil {
		return err
	}
	if !resume {
		if o.unfinished() {
			o.warnings = append(o.warnings, fmt.Sprintf("%s: the files of an unfinished run were removed: --resume would have continued it", o.partial))
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
	return renameNew(o.replaced, o.final)
}

// removeDir removes a directory, the journal in it last: what is left where that fails is
// known by it.
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

// clear removes what a killed run left in the partial directory, the marker last.
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
		return fmt.Errorf("%s: what an earlier run left cannot be removed: %w", o.partial, err)
	}
	return nil
}

// path returns where a file of the result is written.
func (o *output) path(name string) string { return filepath.Join(o.partial, filepath.FromSlash(name)) }

// unfinished reports whether an earlier run left work that is done, and more to do.
func (o *output) unfinished() bool {
	records, _, _ := readJournal(o.path(markerName)) // one that cannot be read is removed
	return len(records) > 1 && !records[len(records)-1].Complete
}

// mark makes the marker, if it is not there: a journal of nothing.
func (o *output) mark() error {
	f, err := openOwn(o.path(markerName))
	if err != nil {
		return err
	}
	return f.Close()
}

// create begins a file of weights.
func (o *output) create(f File) (*safetensors.Writer, error) { return o.add(f, safetensors.Create) }

// reopen goes on with a file of weights.
func (o *output) reopen(f File) (*safetensors.Writer, error) { return o.add(f, safetensors.Reopen) }

func (o *output) add(f File, open func(string, *safetensors.Layout) (*safetensors.Writer, error)) (*safetensors.Writer, error) {
	w, err := open(o.fileOf(f), f.Layout)
	if err == nil {
		o.writers = append(o.writers, w)
	}
	return w, err
}

// fileOf returns where a file of weights is written.
func (o *output) fileOf(f File) string {
	if o.single {
		return o.path(singleName)
	}
	return o.path(f.Name)
}

// writeFile writes a small file of the result.
func (o *output) writeFile(name string, data []byte) error {
	return o.fill(name, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// carry copies a file of the source, until ctx ends, and returns its checksum.
func (o *output) carry(ctx context.Context, other hf.Other) (uint64, error) {
	in, err := os.Open(other.Path)
	if err != nil {
		return 0, fmt.Errorf("%s: it goes along with the weights but cannot be read: %w", other.Name, err)
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
		err = fmt.Errorf("%s: it changed while it was read: run again when nothing writes to it", other.Path)
	}
	return sum.Value(), err
}

func (o *output) fill(name string, write func(io.Writer) error) error {
	path, local := o.path(name), filepath.FromSlash(name)
	root, err := os.OpenRoot(o.partial) // follows no link that leads out of it
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
		err = syncDir(dir) // commit does that of the directory itself
	}
	return err
}

// commit finishes the files and gives the result its name. Where it fails the
// destination is as it was. What goes wrong after that is a warning.
func (o *output) commit() (warnings []string, err error) {
	for _, w := range o.writers {
		if err := w.Close(); err != nil {
			return nil, err
		}
	}
	if err := syncDir(o.partial); err != nil {
		return nil, err
	}
	if o.whole != nil {
		if err := o.whole(); err != nil {
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

// tidy removes what stands beside a result that has its name. The lock goes
// last, so that no other run begins in a directory that is being removed.
func (o *output) tidy() (warnings []string) {
	defer o.unlock()
	o.unmark()
	if err := o.syncNames(); err != nil {
		warnings = append(warnings, fmt.Sprintf("%s is whole, but a power failure may undo its name: %v", o.final, err))
	}
	left := o.replaced
	if o.single {
		left = o.partial
	}
	if err := o.remove(left); err != nil {
		warnings = append(warnings, fmt.Sprintf("%s is whole, but %s could not be removed: remove it yourself (%v)", o.final, left, err))
	}
	return warnings
}

// dropPartial removes what killed runs of the same plan left in the partial directory,
// once the result is whole.
func (o *output) dropPartial(plan string) {
	records, _, err := readJournal(o.path(markerName))
	if len(records) > 0 && (records[0].Begin == nil || records[0].Begin.Plan != plan) {
		return // of another result
	}
	if _, missing := os.Lstat(o.partial); err == nil && missing == nil && !o.part && o.own() == nil && o.claim() == nil {
		o.abort()
	}
}

// leftover removes the journal that a run left in the result that was killed once this
// had its name. An earlier directory that the result replaced is reported.
func (o *output) leftover() (warnings []string) {
	o.unmark()
	if _, err := os.Lstat(o.replaced); err == nil {
		warnings = append(warnings, fmt.Sprintf("%s is whole, but %s, which it replaced, is still there: remove it yourself", o.final, o.replaced))
	}
	return warnings
}

// singleName is the name in the partial directory of a result of one file.
const singleName = "single" + safetensors.Suffix

// abort removes what was written.
func (o *output) abort() {
	for _, w := range o.writers {
		_ = w.Abort() // the directory goes anyway
	}
	_ = o.clear() // what stays is under the partial name, and the next run removes it
	o.removePartial()
	o.removeParents()
	o.unlock()
}

// suspend leaves what was written for a run that goes on with it.
func (o *output) suspend() {
	for _, w := range o.writers {
		_ = w.Suspend() // what the journal says is done is on the disk
	}
	o.unlock()
}

func (o *output) unlock() {
	if o.lock != nil {
		_ = o.lock.Close() // nothing was written through it
		o.lock = nil
	}
}

// syncNames makes the names beside the destination durable, and those of the
// folders that were made for it.
func (o *output) syncNames() error {
	err := syncDir(filepath.Dir(o.final))
	for _, dir := range o.parents {
		err = errors.Join(err, syncDir(filepath.Dir(dir)))
	}
	return err
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which writes names through
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
