package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// A beginning is the first record of a journal. It identifies the run.
type beginning struct {
	Version int          `json:"version"`
	Plan    string       `json:"plan"`              // hash of all decisions of the plan
	Method  string       `json:"method,omitempty"`  // methodName of Plan.Method, for errors; "" in the journals of earlier programs
	Worker  int          `json:"worker"`            // which of the workers
	Workers int          `json:"workers,omitempty"` // 0: one writes everything
	Single  bool         `json:"single,omitempty"`  // the source is a file
	ToFile  bool         `json:"toFile,omitempty"`  // the destination is a file
	Source  []sourceFile `json:"source"`
	Files   []partFile   `json:"files,omitempty"` // of the whole result, if there are workers
}

// A sourceFile identifies the contents of a file of the source.
type sourceFile struct {
	Name   string `json:"name"`
	Path   bool   `json:"path,omitempty"` // Name is a path, of another checkpoint
	Size   int64  `json:"size"`
	Time   int64  `json:"time"`             // modification time in nanoseconds; 0 for a remote file
	Sample string `json:"sample,omitempty"` // hash of the header and of pages of the data
}

// A partFile is a file of the result, and the worker that writes it.
type partFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // -1 for a file without weights
	Worker int    `json:"worker"`
}

// beginning describes the plan and its source as they are now.
func (p *Plan) beginning() (*beginning, error) {
	b := &beginning{Version: journalVersion, Plan: p.fingerprint(), Method: methodName(p.Method()), Worker: p.worker.Index,
		Workers: p.worker.Count, Single: p.source.Source.Single, ToFile: p.single}
	for _, s := range p.source.Source.Shards() {
		file, err := describe(s)
		if err != nil {
			return nil, err
		}
		b.Source = append(b.Source, file)
	}
	for _, s := range p.copied() {
		file, err := describe(s)
		if err != nil {
			return nil, err
		}
		file.Name, file.Path = s.File.Name(), true
		if s.File.Identity() == "" {
			if file.Name, err = filepath.Abs(file.Name); err != nil {
				return nil, err
			}
		}
		b.Source = append(b.Source, file)
	}
	for _, o := range p.others() {
		file, err := sampled(o.Name, o.Path, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: read the auxiliary file: %w", o.Name, err)
		}
		b.Source = append(b.Source, file)
	}
	if p.source.Source.Remote() {
		for i := range b.Source {
			b.Source[i].Time = 0
		}
	}
	if p.worker.Count > 0 {
		b.Files = p.partFiles()
	}
	return b, nil
}

// fingerprint returns a hash of everything that determines the bytes of the result, except the
// data of the source.
func (p *Plan) fingerprint() string {
	h := sha256.New()
	format, main := p.Format, p.Quantizer
	if i := slices.IndexFunc(p.decisions, func(d decision) bool { return d.action == Quantize }); i >= 0 { // not that of the last rule
		main = *p.decisions[i].quantizer
		format = main.Format
	}
	fmt.Fprintf(h, "%s %v\n%s", format.Name, format.Block, behavior(main))
	if p.convention != nil {
		fmt.Fprintf(h, "%q %q\n", p.Convention, p.Scheme)
	}
	if p.statistics != "" {
		fmt.Fprintf(h, "%s %q %d\n", p.method, p.statistics, solver)
	}
	for _, d := range p.decisions {
		fmt.Fprintf(h, "%q %d %q\n", d.Name, uint8(d.action), d.file)
		if d.action == Quantize && *d.quantizer != main {
			fmt.Fprintf(h, "%s %v\n%s", d.quantizer.Format.Name, d.quantizer.Format.Block, behavior(*d.quantizer))
		}
		if d.fold != nil {
			fmt.Fprintf(h, "fold %v %v\n", d.fold.rows, d.fold.columns)
		}
		if d.cast != nil {
			fmt.Fprintf(h, "cast %s %t\n", d.cast.From, p.casting.Requantize)
		}
		if d.codes != nil {
			fmt.Fprintf(h, "bytes %x\n", *d.codes)
		}
		for _, s := range d.stored {
			fmt.Fprintf(h, "%q %d %x\n", s.Name, s.Part, s.Value)
		}
	}
	for _, f := range p.small {
		fmt.Fprintf(h, "%q %q\n", f.Name, f.Data)
	}
	for _, f := range p.files {
		fmt.Fprintf(h, "%q %q\n", f.name, f.layout.HeaderBytes())
	}
	fmt.Fprintf(h, "%q %q", p.config, p.index)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// behavior lists what a quantizer does beside its format: a line for each field that is not zero. So a field that
// quant adds changes the fingerprints of plans that set it, and no others. The names and their order stay.
func behavior(q quant.Quantizer) string {
	zero, text := quant.Quantizer{}, ""
	for _, f := range []struct {
		name        string
		value, zero any
	}{
		{"rule", q.Rule, zero.Rule},
		{"exact ratio", q.ExactRatio, zero.ExactRatio},
		{"even mantissa", q.EvenMantissa, zero.EvenMantissa},
		{"arithmetic", q.Arithmetic, zero.Arithmetic},
		{"power of two", q.PowerOfTwo, zero.PowerOfTwo},
		{"non-finite", q.NonFinite, zero.NonFinite},
		{"smallest divisor", q.SmallestDivisor, zero.SmallestDivisor},
		{"unit zero scale", q.UnitZeroScale, zero.UnitZeroScale},
		{"search", q.Search, zero.Search},
		{"top scale", q.TopScale, zero.TopScale},
		{"rounding", q.Rounding, zero.Rounding},
		{"element NaN", q.ElementNaN, zero.ElementNaN},
		{"negative zero", q.NegativeZero, zero.NegativeZero},
		{"hadamard", q.Hadamard, zero.Hadamard},
	} {
		if f.value != f.zero {
			text += fmt.Sprintf("%s %v\n", f.name, f.value)
		}
	}
	return text
}

// The sample of a source file: the number and the size of its pages.
const (
	samplePages = 64
	samplePage  = 4096
)

// describe identifies the contents of a shard.
func describe(s hf.Shard) (sourceFile, error) {
	if identity := s.File.Identity(); identity != "" {
		return sourceFile{Name: s.Name, Size: s.File.Size(), Sample: identity}, nil
	}
	return sampled(s.Name, s.File.Name(), s.File.DataStart())
}

// sampled identifies the contents of a file whose data begins at start.
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
	return sourceFile{Name: name, Size: info.Size(), Time: info.ModTime().UnixNano(), Sample: hex.EncodeToString(h.Sum(nil)[:16])}, nil
}

// matches returns ErrChanged if the run that wants to resume is not the one that began with b.
func (b *beginning) matches(want *beginning, source string) error {
	if problem := b.mismatch(want, source); problem != "" {
		return because(ErrChanged, errors.New(problem+": start again instead of resuming"))
	}
	return nil
}

// mismatch returns the first difference between b and the beginning of the resuming run, or "".
func (b *beginning) mismatch(want *beginning, source string) string {
	switch {
	case b == nil:
		return "the journal does not identify its run"
	case b.Version != want.Version:
		return fmt.Sprintf("the journal has version %d, but this program writes version %d", b.Version, want.Version)
	case b.Worker != want.Worker || b.Workers != want.Workers:
		return fmt.Sprintf("the journal belongs to worker %d of %d", b.Worker, b.Workers)
	}
	now := map[string]sourceFile{}
	for _, f := range want.Source {
		now[f.Name] = f
	}
	for _, f := range b.Source {
		n, ok := now[f.Name]
		path := filepath.Join(source, filepath.FromSlash(f.Name))
		switch {
		case f.Path:
			path = f.Name
		case b.Single:
			path = source
		case strings.Contains(source, "://"):
			path = source + "/" + f.Name
		}
		switch {
		case !ok && !b.Single:
			return fmt.Sprintf("%s was removed after the earlier run began", path)
		case !ok:
		case n.Size != f.Size:
			return fmt.Sprintf("%s has %d bytes, but had %d when the earlier run began", path, n.Size, f.Size)
		case n.Time != f.Time:
			return fmt.Sprintf("%s changed after the earlier run began", path)
		case n.Sample != f.Sample:
			return fmt.Sprintf("%s has other contents than when the earlier run began, with the same size and time", path)
		}
	}
	if b.Plan == want.Plan && len(b.Source) == len(want.Source) {
		return ""
	}
	if b.Method != "" && b.Method != want.Method { // the plan covers it
		return fmt.Sprintf("the earlier run had %s, and this one has %s", methodText(b.Method), methodText(want.Method))
	}
	return "the earlier run had another source or other options"
}

// methodName returns the name of a method of Plan.Method.
func methodName(method string) string { return cmp.Or(method, calibration.Nearest.String()) }

// methodText describes a method of Plan.Method.
func methodText(method string) string { return "method " + limits.Text(methodName(method)) }

// unchanged returns an error if a file of the source changed since it was opened.
func (p *Plan) unchanged() error {
	for _, s := range slices.Concat(p.source.Source.Shards(), p.copied()) {
		if err := s.File.Changed(); err != nil {
			return because(ErrChanged, err)
		}
	}
	return nil
}

// restore reads the journal in the partial directory and restores the state of its run. Without
// a journal it starts one.
func (r *run) restore(ctx context.Context, begin *beginning) error {
	path := r.out.path(markerName)
	records, size, err := readJournal(path)
	if err != nil {
		return err
	}
	if len(records) > 0 {
		if err := records[0].Begin.matches(begin, r.plan.source.Source.Path); err != nil {
			return fmt.Errorf("%s: %w", r.out.partial, err)
		}
		if !r.take(records[1:]) {
			return because(ErrChanged, fmt.Errorf("%s: the journal does not match the plan: start again instead of resuming", r.out.partial))
		}
	}
	if len(records) == 0 && r.options.Resume {
		// The earlier run ended before any of its work was on the disk.
		if err := r.out.clear(); err != nil {
			return err
		}
	}
	if r.journal, err = openJournal(path, size); err != nil {
		return durable.CannotWrite(r.out.partial, err)
	}
	r.out.closed = func() error { // Windows does not rename a directory with an open file
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

// A damagedPartial is the error of a file of an earlier run that does not match its journal.
type damagedPartial struct{ file, problem string }

// Error names the file and the problem.
func (e *damagedPartial) Error() string {
	return fmt.Sprintf("%s of an earlier run is damaged: %s", e.file, e.problem)
}

// checkWritten compares the closed files of a resumed run with the checksums of the written
// bytes: a file of the earlier run may have been damaged since.
func (r *run) checkWritten(ctx context.Context) error {
	for _, f := range r.plan.files {
		if !r.plan.writes(f.name) {
			continue
		}
		file, err := f.layout.Open(r.out.fileOf(f))
		if container, ok := errors.AsType[*safetensors.ContainerError](err); ok {
			return &damagedPartial{f.name, container.Problem}
		}
		if err != nil {
			return err
		}
		err = checkSums(ctx, file.Tensors(), r.recordOf(f, "").Tensors, r.options.Threads, func(t safetensors.TensorInfo) (string, uint64,
			error) {
			sum, err := checksum.OfTensor(file, t)
			return t.Name, sum, err
		})
		if errors.Is(err, ErrDamaged) {
			err = &damagedPartial{f.name, err.Error()}
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// discard removes the written files, for a run that restarts in the same directory.
func (r *run) discard() error {
	if r.journal != nil {
		_ = r.journal.close() // it is removed
	}
	for _, w := range r.out.writers {
		_ = w.Suspend() // its file is removed
	}
	r.out.writers, r.out.closed = nil, nil
	return r.out.clear()
}

// take restores the state of the records. It returns false if they do not match the plan.
func (r *run) take(records []record) bool {
	for _, rec := range records {
		switch {
		case rec.Amax != nil:
			i := rec.Amax.Weight
			if i < 0 || i >= len(r.plan.decisions) {
				return false
			}
			r.swept[i] = rec.Amax.extremes()
			r.resumed = true
		case rec.Done != nil:
			d := rec.Done
			if d.Weight < r.start.Weight || d.Weight >= len(r.plan.decisions) || !r.plan.mine(d.Weight) ||
				!r.inside(d) || len(d.Written) != len(r.plan.decisions[d.Weight].stored) || d.Weight == r.start.Weight && d.Row < r.start.From ||
				!r.sums[d.Weight].restore(d) {
				return false
			}
			r.start = d.tile()
			r.resumed = true
		case rec.Auxiliary != "":
			r.auxiliary[rec.Auxiliary] = rec.Checksum
		case rec.Complete:
			r.complete = true
		}
	}
	return true
}

// inside reports whether a position is in the weight, or at its end.
func (r *run) inside(d *doneTiles) bool {
	t := r.tiling(d.Weight)
	return 0 <= d.Row && d.Row <= t.Rows && 0 <= d.Col && d.Col <= t.Cols
}
