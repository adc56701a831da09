package convert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A beginning is the first record of a journal: whose it is.
type beginning struct {
	Version int          `json:"version"`
	Plan    string       `json:"plan"`              // hash of everything that the plan decides
	Worker  int          `json:"worker"`            // which of the workers
	Workers int          `json:"workers,omitempty"` // 0: one writes everything
	Single  bool         `json:"single,omitempty"`  // the source is a file
	ToFile  bool         `json:"toFile,omitempty"`  // the destination is a file
	Source  []sourceFile `json:"source"`
	Files   []partFile   `json:"files,omitempty"` // of the whole result, where there are workers
}

// A sourceFile is what is known of a file of the source without reading it all.
type sourceFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Time   int64  `json:"time"`             // of its last change, in nanoseconds; 0 of what is elsewhere
	Sample string `json:"sample,omitempty"` // hash of the header and of pages all over the data
}

// A partFile is a file of the result, and the worker that writes it.
type partFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // of weights; -1 of others
	Worker int    `json:"worker"`
}

// beginning describes the plan and its source as they are now.
func (p *Plan) beginning() (*beginning, error) {
	b := &beginning{Version: journalVersion, Plan: p.fingerprint(), Worker: p.worker.Index, Workers: p.worker.Count, Single: p.Source.Source.Single, ToFile: p.single}
	for _, s := range p.Source.Source.Shards() {
		file, err := describe(s)
		if err != nil {
			return nil, err
		}
		b.Source = append(b.Source, file)
	}
	for _, o := range p.others() {
		file, err := sampled(o.Name, o.Path, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: it goes along with the weights but cannot be read: %w", o.Name, err)
		}
		b.Source = append(b.Source, file)
	}
	if p.Source.Source.Remote() {
		for i := range b.Source {
			b.Source[i].Time = 0
		}
	}
	if p.worker.Count > 0 {
		b.Files = p.partFiles()
	}
	return b, nil
}

// fingerprint returns a hash of everything that decides the bytes of the result,
// the data of the source aside.
func (p *Plan) fingerprint() string {
	h := sha256.New()
	q := p.Quantizer
	q.Format = quant.Format{} // its pointers differ from run to run
	fmt.Fprintf(h, "%s %v %+v\n", p.Format.Name, p.Format.Block, q)
	if p.Convention != nil {
		scheme, _ := p.Convention.Scheme(p.Format)
		fmt.Fprintf(h, "%q %q\n", p.Convention.Name, scheme)
	}
	for _, d := range p.Decisions {
		fmt.Fprintf(h, "%q %d %q\n", d.Weight.Name, d.Action, d.File)
		for _, s := range d.Stored {
			fmt.Fprintf(h, "%q %d %x\n", s.Name, s.Part, s.Value)
		}
	}
	for _, f := range p.small {
		fmt.Fprintf(h, "%q %q\n", f.Name, f.Data)
	}
	for _, f := range p.Files {
		fmt.Fprintf(h, "%q %q\n", f.Name, f.Layout.HeaderBytes())
	}
	fmt.Fprintf(h, "%q %q", p.config, p.index)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Of the data of a source file, so many pages of so many bytes are looked at.
const (
	samplePages = 64
	samplePage  = 4096
)

// describe returns what is known of a shard.
func describe(s hf.Shard) (sourceFile, error) {
	if identity := s.File.Identity(); identity != "" {
		return sourceFile{Name: s.Name, Size: s.File.Size(), Sample: identity}, nil
	}
	return sampled(s.Name, s.File.Name(), s.File.DataStart())
}

// sampled returns what is known of a file that has data from start on.
func sampled(name, path string, start int64) (sourceFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return sourceFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return sourceFile{}, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, start)); err != nil {
		return sourceFile{}, err
	}
	page := make([]byte, samplePage)
	for i := range int64(samplePages) {
		n, err := f.ReadAt(page, start+(info.Size()-start)/samplePages*i)
		if err != nil && !errors.Is(err, io.EOF) {
			return sourceFile{}, err
		}
		h.Write(page[:n])
	}
	return sourceFile{name, info.Size(), info.ModTime().UnixNano(), hex.EncodeToString(h.Sum(nil)[:16])}, nil
}

// anew is what to do about a run that cannot be resumed.
const anew = "run without --resume to start again"

// matches fails where b is not the beginning of the run that wants to go on.
func (b *beginning) matches(want *beginning, source string) error {
	switch {
	case b == nil:
		return errors.New("the journal does not say what it is of: " + anew)
	case b.Version != want.Version:
		return fmt.Errorf("the journal is of version %d, and this program writes %d: %s", b.Version, want.Version, anew)
	case b.Worker != want.Worker || b.Workers != want.Workers:
		return fmt.Errorf("the journal is of worker %d of %d: %s", b.Worker, b.Workers, anew)
	}
	now := map[string]sourceFile{}
	for _, f := range want.Source {
		now[f.Name] = f
	}
	for _, f := range b.Source {
		n, ok := now[f.Name]
		path := filepath.Join(source, filepath.FromSlash(f.Name))
		switch {
		case b.Single:
			path = source
		case strings.Contains(source, "://"):
			path = source + "/" + f.Name
		}
		switch {
		case !ok && !b.Single:
			return fmt.Errorf("%s is gone, which was there when the earlier run began: %s", path, anew)
		case !ok:
		case n.Size != f.Size:
			return fmt.Errorf("%s has %d bytes, and had %d when the earlier run began: %s", path, n.Size, f.Size, anew)
		case n.Time != f.Time:
			return fmt.Errorf("%s was changed after the earlier run began: %s", path, anew)
		case n.Sample != f.Sample:
			return fmt.Errorf("%s has other contents than when the earlier run began, though its size and time are the same: %s", path, anew)
		}
	}
	if b.Plan != want.Plan || len(b.Source) != len(want.Source) {
		return errors.New("the earlier run had another source or other options: give it those, or " + anew)
	}
	return nil
}

// unchanged fails where a file of the source changed since it was opened.
func (p *Plan) unchanged() error {
	for _, s := range p.Source.Source.Shards() {
		if err := s.File.Changed(); err != nil {
			return err
		}
	}
	return nil
}

// restore reads the journal in the partial directory and takes over what it says
// is done; without one it begins one.
func (r *run) restore(ctx context.Context, begin *beginning) error {
	path := r.out.path(markerName)
	records, size, err := readJournal(path)
	if err != nil {
		return err
	}
	if len(records) > 0 {
		if err := records[0].Begin.matches(begin, r.plan.Source.Source.Path); err != nil {
			return fmt.Errorf("%s: %w", r.out.partial, err)
		}
		if !r.take(records[1:]) {
			return fmt.Errorf("%s: the journal does not fit the plan: %s", r.out.partial, anew)
		}
	}
	if len(records) == 0 && r.options.Resume {
		// The earlier run ended before anything that it did was on the disk.
		if err := r.out.clear(); err != nil {
			return err
		}
	}
	if r.journal, err = openJournal(path, size); err != nil {
		return cannotWrite(r.out.partial, err)
	}
	r.out.whole = func() error { // Windows renames no directory in which a file is open
		if r.resumed {
			if err := r.checkWritten(ctx); err != nil {
				return err
			}
		}
		return errors.Join(r.journal.append(append(r.pending, record{Complete: true})...), r.journal.close())
	}
	if len(records) == 0 {
		return r.journal.write(record{Begin: begin})
	}
	return nil
}

// A damagedPartial is the error of a file that an earlier run left and that is not what
// its journal says.
type damagedPartial struct{ file, problem string }

// Error names the file and what is wrong with it.
func (e *damagedPartial) Error() string {
	return fmt.Sprintf("%s, which an earlier run left, is damaged: %s", e.file, e.problem)
}

// checkWritten compares the closed files of a resumed run with the checksums of what
// was written to them, until ctx ends. The journal vouches for the bytes of the earlier
// run, but a file may have been damaged since.
func (r *run) checkWritten(ctx context.Context) error {
	for _, f := range r.plan.Files {
		if !r.plan.writes(f.Name) {
			continue
		}
		file, err := f.Layout.Open(r.out.fileOf(f))
		if container, ok := errors.AsType[*safetensors.ContainerError](err); ok {
			return &damagedPartial{f.Name, container.Problem}
		}
		if err != nil {
			return err
		}
		err = checkSums(ctx, file.Tensors(), r.recordOf(f, "").Tensors, r.options.Threads, func(t safetensors.TensorInfo) (string, uint64, error) {
			sum, err := checksum.OfTensor(file, t)
			return t.Name, sum, err
		})
		if errors.Is(err, errDamaged) {
			err = &damagedPartial{f.Name, err.Error()}
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// discard removes what was written, for a run that begins anew in the same place.
func (r *run) discard() error {
	if r.journal != nil {
		_ = r.journal.close() // it is removed
	}
	for _, w := range r.out.writers {
		_ = w.Suspend() // its file is removed
	}
	r.out.writers, r.out.whole = nil, nil
	return r.out.clear()
}

// take takes over what the records say; false where that cannot be.
func (r *run) take(records []record) bool {
	for _, rec := range records {
		switch {
		case rec.Amax != nil:
			i := rec.Amax.Weight
			if i < 0 || i >= len(r.plan.Decisions) {
				return false
			}
			r.swept[i] = rec.Amax.extremes()
			r.resumed = true
		case rec.Done != nil:
			d := rec.Done
			if d.Weight < r.start.Weight || d.Weight >= len(r.plan.Decisions) || !r.plan.mine(d.Weight) ||
				!r.inside(d) || len(d.Written) != len(r.plan.Decisions[d.Weight].Stored) || d.Weight == r.start.Weight && d.Row < r.start.From || !r.sums[d.Weight].restore(d) {
				return false
			}
			r.start = d.tile()
			r.resumed = true
		case rec.Carried != "":
			r.carried[rec.Carried] = rec.Checksum
		case rec.Complete:
			r.complete = true
		}
	}
	return true
}

// inside reports whether a place is in the weight, or at its end.
func (r *run) inside(d *doneTiles) bool {
	t := r.tiling(d.Weight)
	return 0 <= d.Row && d.Row <= t.Rows && 0 <= d.Col && d.Col <= t.Cols
}

// unlike returns what is different at a path from the finished result of the plan, ""
// where nothing is. It compares
//
//	names, headers, configuration and index    with those of the plan
//	the plan's fingerprint in every file       with that of the plan
//	files that are copied, byte for byte       with the source's
//	checksums of what was read                 with those of the source now
//	checksums of every tensor                  with those of the bytes there now
//	the first tiles of some weights            with what would be written
func (p *Plan) unlike(ctx context.Context, path string, threads int) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "it cannot be read", err
	}
	if info.IsDir() == p.single {
		return "it is of another kind", nil
	}
	at := func(name string) string {
		if p.single {
			return path
		}
		return filepath.Join(path, filepath.FromSlash(name))
	}
	if why, err := p.unlikeOthers(at); why != "" || err != nil {
		return why, err
	}
	plan, files, records := p.fingerprint(), map[string]*safetensors.File{}, map[string]checksum.Record{}
	for _, f := range p.Files {
		file, err := f.Layout.Open(at(f.Name))
		if err != nil {
			return fmt.Sprintf("%s has another header or size", f.Name), nil
		}
		defer file.Close()
		record, err := checksum.ParseRecord(file.Filled())
		if err != nil || record.Plan != plan {
			return fmt.Sprintf("%s is of other options or not finished", f.Name), nil
		}
		files[f.Name], records[f.Name] = file, record
	}
	for _, f := range p.Files {
		file := files[f.Name]
		err := checkSums(ctx, file.Tensors(), records[f.Name].Tensors, threads, func(t safetensors.TensorInfo) (string, uint64, error) {
			sum, err := checksum.OfTensor(file, t)
			return t.Name, sum, err
		})
		if errors.Is(err, errDamaged) {
			return fmt.Sprintf("%s is damaged: %v", f.Name, err), nil
		} else if err != nil {
			return "", err
		}
	}
	if why, err := p.changedSource(ctx, records, threads); why != "" || err != nil {
		return why, err
	}
	same, err := p.sameWeights(files)
	if err == nil && !same {
		return "its weights are not what this program writes", nil
	}
	return "", err
}

// unlikeOthers compares the files that are not of weights.
func (p *Plan) unlikeOthers(at func(name string) string) (string, error) {
	if p.single {
		return "", nil
	}
	want := map[string][]byte{}
	if p.config != nil {
		want[hf.ConfigName] = p.config
	}
	if p.index != nil {
		want[safetensors.IndexName] = p.index
	}
	for _, f := range p.small {
		want[f.Name] = f.Data
	}
	for name, data := range want {
		if got, err := bounded.ReadFile(at(name), int64(len(data))); err != nil || !bytes.Equal(got, data) {
			return fmt.Sprintf("%s is another", name), nil
		}
	}
	for _, o := range p.others() {
		source, err := fileSum(o.Path)
		if err != nil {
			return "", fmt.Errorf("%s: it goes along with the weights but cannot be read: %w", o.Name, err)
		}
		if got, err := fileSum(at(o.Name)); err != nil || got != source {
			return fmt.Sprintf("%s is not that of the source", o.Name), nil
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

// errDiffers is what a comparison finds.
var errDiffers = errors.New("other bytes are stored")

// A comparison stands in place of a writer, and fails where a file has other
// bytes than those that would be written.
type comparison struct{ file *safetensors.File }

// WriteTensorAt fails where the file has other bytes.
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

// compareWeights is how many weights of the smallest are compared.
const compareWeights = 8

// sameWeights reports whether the first tiles of some of the smallest weights
// that are converted are stored as the plan would store them.
func (p *Plan) sameWeights(files map[string]*safetensors.File) (bool, error) {
	r := newRun(p, RunOptions{})
	for name, f := range files {
		r.writers[name] = comparison{f}
	}
	for _, i := range p.smallest(compareWeights) {
		if err := r.sweepGroup(i); err != nil {
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
