package convert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/verify"
)

// Merge joins the parts of workers beside dst ([Plan.Worker]) and gives the result its name. It
// checks that every part is complete ([ErrUnfinished]), that all have the same plan
// ([ErrChanged]), and that the bytes of every file match their checksums ([ErrDamaged]); then it
// moves the files together. Of the options it uses Force, Progress and Uploaded. Merge completes an
// earlier merge that was killed, and does nothing if dst is complete. If ctx ends before files
// are moved, the parts are unchanged. With Uploaded, dst gets the files that the parts have.
func Merge(ctx context.Context, dst string, o RunOptions) (*Result, error) {
	dst = filepath.Clean(dst)
	m, err := findParts(dst)
	var result *Result
	if err == nil {
		result, err = m.merge(ctx, o)
		m.unlock()
	}
	if err != nil { // another merge may have been faster, and moved the parts away meanwhile
		if again, failed := findParts(dst); failed == nil {
			defer again.unlock()
			if len(again.parts) == 0 {
				return again.merge(ctx, o)
			}
		}
	}
	return result, err
}

// merge checks and joins the parts, unless that was done.
func (m *merging) merge(ctx context.Context, o RunOptions) (*Result, error) {
	if len(m.parts) == 0 || m.published() {
		out := &output{final: m.dst, replaced: m.dst + replacedSuffix}
		return &Result{Finished: true, Warnings: append(m.remove(0), out.leftover()...)}, nil
	}
	m.uploaded = o.Uploaded
	if err := m.check(ctx, o.Progress); err != nil {
		return nil, err
	}
	warnings, err := m.join(o.Force)
	if err != nil {
		return nil, err
	}
	return &Result{Tensors: m.tensors(), Warnings: append(warnings, m.remove(1)...)}, nil
}

// join moves the files together and gives the result its name.
func (m *merging) join(force bool) (warnings []string, err error) {
	out := m.output(force)
	if err := out.restore(true); err != nil {
		return nil, err
	}
	if err := out.admitName(); err != nil {
		return nil, err
	}
	if err := m.gather(); err != nil {
		return nil, err
	}
	return out.commit()
}

// output returns the part of worker 0 as the output to commit.
func (m *merging) output(force bool) *output {
	first := m.parts[0].beginning
	out := &output{final: m.dst, single: first.ToFile, force: force, partial: m.dir(0), replaced: m.dst + replacedSuffix,
		names: map[string]bool{}, remove: removeDir}
	for _, f := range first.Files {
		out.names[f.Name] = true
	}
	if out.single {
		out.names = map[string]bool{singleName: true}
	}
	return out
}

// remove removes the parts of the workers from first on, whose files were moved. Files that others put there stay.
func (m *merging) remove(first int) (warnings []string) {
	for i := first; i < len(m.parts); i++ {
		err := foreign(m.dir(i), m.parts[i].names())
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = removeDir(m.dir(i))
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s is complete, but %s could not be removed: remove it yourself (%v)", m.dst, m.dir(i), err))
		}
	}
	return warnings
}

// published reports whether an earlier merge was killed after its rename: the remaining journals
// say that the parts were joined, and the joined files were renamed. If a part was never
// written, the others are not merged, whatever exists at the destination.
func (m *merging) published() bool {
	merged := false
	for i, p := range m.parts {
		path := m.dir(i)
		if p.merged && (i > 0 || p.beginning != nil && p.beginning.ToFile) {
			merged = true
			path = filepath.Join(path, singleName)
		} else if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 {
			merged = true // it was being removed; its journal is removed last
			continue
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	_, err := os.Lstat(m.dst)
	return merged && err == nil
}

// merging has the parts of a result.
type merging struct {
	dst   string
	parts []part // by worker
	locks []*durable.Lock

	uploaded func(worker int, name string, size int64) error // of RunOptions
}

// A part is the journal of a worker.
type part struct {
	beginning *beginning
	done      map[int]*doneTiles // the last record of each weight
	written   map[string]uint64  // checksums of files without weights
	complete  bool
	merged    bool
	swept     map[int]uint32 // bits of the amax of each weight that the worker read
	size      int64          // of the journal
}

// dir returns the directory of the part of a worker.
func (m *merging) dir(worker int) string { return partDir(m.dst, worker, len(m.parts)) }

func partDir(dst string, worker, workers int) string {
	return fmt.Sprintf("%s%s%d-of-%d", dst, partSuffix, worker, workers)
}

func (m *merging) unlock() {
	for _, l := range m.locks {
		_ = l.Close() // nothing was written through it
	}
}

// findParts locks the parts beside a destination and reads their journals. There may be no
// parts if the destination is a complete checkpoint.
func findParts(dst string) (*merging, error) {
	entries, err := os.ReadDir(filepath.Dir(dst))
	if err != nil {
		return nil, err
	}
	counts := map[int]bool{}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), filepath.Base(dst)+partSuffix); ok {
			if _, count, ok := strings.Cut(rest, "-of-"); ok {
				if n, err := strconv.Atoi(count); err == nil && n > 0 && n <= maxWorkers {
					counts[n] = true
				}
			}
		}
	}
	m := &merging{dst: dst}
	numbers := slices.Sorted(maps.Keys(counts))
	switch {
	case len(numbers) == 0 && isSound(dst):
		return m, nil
	case len(numbers) == 0:
		return nil, because(ErrUnfinished, fmt.Errorf("%s: no parts (%s%s…): run the workers first", dst, dst, partSuffix))
	case len(numbers) > 1:
		return nil, fmt.Errorf("%s: parts of several runs, with %d and with %d workers (%s%s…): remove the obsolete ones", dst, numbers[0],
			numbers[1], dst, partSuffix)
	}
	m.parts = make([]part, numbers[0])
	for i := range m.parts {
		var held *durable.Lock
		info, err := os.Lstat(m.dir(i))
		if err == nil && !info.IsDir() {
			err = notDirectory(m.dir(i))
		} else if err == nil {
			held, err = durable.Dir(m.dir(i))
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // check reports it
		case errors.Is(err, durable.ErrHeld):
			err = fmt.Errorf("%s: worker %d or another merge uses %s, which is locked: wait for it", dst, i, m.dir(i))
		case err == nil:
			m.locks = append(m.locks, held)
			err = m.parts[i].read(m.dir(i))
		}
		switch b := m.parts[i].beginning; {
		case err != nil || b == nil:
		case b.Worker != i || b.Workers != len(m.parts):
			err = fmt.Errorf("%s: its journal belongs to worker %d of %d: rename it to %s, or remove it", m.dir(i), b.Worker, b.Workers,
				partDir(dst, b.Worker, b.Workers))
		case slices.ContainsFunc(b.Files, func(f partFile) bool { return !f.inside(len(m.parts)) }):
			err = because(ErrDamaged, fmt.Errorf("%s: its journal names files outside the result: run that worker again", m.dir(i)))
		}
		if err != nil {
			m.unlock()
			return nil, err
		}
	}
	return m, nil
}

// isSound reports whether a path is a complete checkpoint.
func isSound(path string) bool {
	if gguf.Named(path) {
		f, err := gguf.Open(path)
		return err == nil && f.Close() == nil
	}
	if part := firstPart(path); part != "" {
		return isSound(part)
	}
	c, err := hf.Open(path)
	return err == nil && c.Close() == nil
}

// read reads the journal of a part.
func (p *part) read(dir string) error {
	records, size, err := readJournal(filepath.Join(dir, markerName))
	if err != nil {
		return err
	}
	p.done, p.written, p.swept, p.size = map[int]*doneTiles{}, map[string]uint64{}, map[int]uint32{}, size
	for _, r := range records {
		switch {
		case r.Begin != nil:
			p.beginning = r.Begin
		case r.Amax != nil:
			p.swept[r.Amax.Weight] = r.Amax.Bits
		case r.Done != nil:
			p.done[r.Done.Weight] = r.Done
		case r.Auxiliary != "":
			p.written[r.Auxiliary] = r.Checksum
		case r.Complete:
			p.complete = true
		case r.Merged:
			p.merged = true
		}
	}
	return nil
}

// check returns an error if a part is incomplete or damaged, or has another plan.
func (m *merging) check(ctx context.Context, report func(verify.Progress)) error {
	for i, p := range m.parts {
		if _, err := os.Lstat(m.dir(i)); errors.Is(err, os.ErrNotExist) {
			return because(ErrUnfinished, fmt.Errorf("%s: the part of worker %d of %d is missing (%s): run that worker, wait until it starts, "+
				"or move its part here", m.dst, i, len(m.parts), m.dir(i)))
		}
		if p.beginning == nil || !p.complete {
			return because(ErrUnfinished, fmt.Errorf("%s: the part of worker %d of %d is incomplete (%s): resume that worker", m.dst, i,
				len(m.parts), m.dir(i)))
		}
		if !m.samePlan(i) {
			return because(ErrChanged, fmt.Errorf("%s: the parts of workers 0 and %d have different sources or options: run one of them again, "+
				"without resuming", m.dst, i))
		}
		if err := foreign(m.dir(i), m.namesOf(i)); err != nil {
			return err
		}
	}
	return m.checkFiles(ctx, report)
}

// samePlan reports whether a part has the plan and the source of that of worker 0. Workers may read copies of the
// source, whose files have other times. Amaxes that several read are equal.
func (m *merging) samePlan(worker int) bool {
	first, p := m.parts[0], m.parts[worker]
	want, got := first.beginning.timeless(), p.beginning.timeless()
	want.Worker = worker
	for weight, bits := range p.swept {
		if other, ok := first.swept[weight]; ok && other != bits {
			return false
		}
		first.swept[weight] = bits
	}
	return got.matches(want, m.dir(0)) == nil && want.Workers == len(m.parts)
}

// timeless returns b without the times of files.
func (b *beginning) timeless() *beginning {
	copied := *b
	copied.Source = slices.Clone(b.Source)
	for i := range copied.Source {
		copied.Source[i].Time = 0
	}
	return &copied
}

// namesOf returns the names of the files that the part of a worker may have. A merge that was killed may have moved
// those of the other workers to the part of worker 0.
func (m *merging) namesOf(worker int) map[string]bool {
	names := map[string]bool{}
	for _, f := range m.parts[0].beginning.Files {
		if worker == 0 || f.Worker == worker {
			names[filepath.ToSlash(m.name(f))] = true
		}
	}
	return names
}

// names returns the names of the files that a result may have by the journal of the part.
func (p *part) names() map[string]bool {
	names := map[string]bool{singleName: true}
	if p.beginning != nil {
		for _, f := range p.beginning.Files {
			names[f.Name] = true
		}
	}
	return names
}

// checkFiles compares the files of the parts with their checksums.
func (m *merging) checkFiles(ctx context.Context, report func(verify.Progress)) error {
	progress := verify.Progress{Stage: "comparing checksums"}
	for _, f := range m.parts[0].beginning.Files {
		progress.Total += max(0, f.Size)
	}
	for _, f := range m.parts[0].beginning.Files {
		path, err := m.find(f)
		if m.away(err) {
			if err := m.uploaded(f.Worker, f.Name, f.Size); err != nil {
				return err
			}
			if progress.Done += max(0, f.Size); report != nil {
				report(progress)
			}
			continue
		}
		if err != nil {
			return err
		}
		if f.Size < 0 {
			sum, err := fileSum(path)
			if err == nil && sum != m.parts[f.Worker].written[f.Name] {
				err = fmt.Errorf("%s: %w", path, ErrDamaged)
			}
			if err != nil {
				return m.damaged(f, err)
			}
			continue
		}
		size, err := checkFile(ctx, path, f.Name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return m.damaged(f, err)
		}
		if size != f.Size {
			return m.damaged(f, fmt.Errorf("%s: got %d bytes, want %d", path, size, f.Size))
		}
		if progress.Done += size; report != nil {
			report(progress)
		}
	}
	return nil
}

// away reports whether an error of find is that of a file which was uploaded.
func (m *merging) away(err error) bool { return m.uploaded != nil && errors.Is(err, ErrUnfinished) }

func (m *merging) damaged(f partFile, err error) error {
	return because(ErrDamaged, fmt.Errorf("%s: the part of worker %d of %d is damaged: run that worker again: %w", m.dst, f.Worker,
		len(m.parts), err))
}

// checkFile compares the tensors of a file of weights with the checksums of its record. It
// returns the size of the file.
func checkFile(ctx context.Context, path, name string) (size int64, err error) {
	if gguf.Named(name) {
		return checkGGUF(ctx, path)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	record, _, err := checksum.RecordOf(f)
	if err == nil {
		err = checkSums(ctx, f.Tensors(), record.Tensors, 0, func(t safetensors.TensorInfo) (string, uint64, error) {
			sum, err := checksum.OfTensor(f, t)
			return t.Name, sum, err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return f.Size(), nil
}

// checkGGUF is checkFile for a GGUF file, or a part of one without the others.
func checkGGUF(ctx context.Context, path string) (size int64, err error) {
	r, info, err := limits.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	f, err := gguf.NewFile(r, info.Size(), path)
	if err != nil {
		return 0, err
	}
	record, _, err := llamacpp.Record(f)
	if err == nil {
		err = checkSums(ctx, f.Tensors, record.Tensors, 0, func(t gguf.TensorInfo) (string, uint64, error) {
			sum, err := llamacpp.ChecksumOf(f, t)
			return t.Name, sum, err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return f.Size(), nil
}

// inside reports whether the file is in the directory of one of the workers.
func (f partFile) inside(workers int) bool {
	return filepath.IsLocal(filepath.FromSlash(f.Name)) && f.Worker >= 0 && f.Worker < workers
}

// name returns the name of a file in a part.
func (m *merging) name(f partFile) string {
	if m.parts[0].beginning.ToFile {
		return singleName
	}
	return filepath.FromSlash(f.Name)
}

// find returns the path of a file: in the part of its worker, or in that of worker 0, if an
// earlier merge has moved it. It returns an error if both have one, which no merge leaves.
func (m *merging) find(f partFile) (string, error) {
	own, moved := filepath.Join(m.dir(f.Worker), m.name(f)), filepath.Join(m.dir(0), m.name(f))
	_, notOwn := os.Lstat(own)
	_, notMoved := os.Lstat(moved)
	switch {
	case notOwn == nil && notMoved == nil && own != moved:
		return "", fmt.Errorf("%s: not a file of worker 0, and %s has the same name: move it away", moved, own)
	case notOwn == nil:
		return own, nil
	case notMoved == nil:
		return moved, nil
	}
	return "", because(ErrUnfinished, fmt.Errorf("%s: %s is missing from the part of worker %d of %d: run that worker again", m.dst, f.Name,
		f.Worker, len(m.parts)))
}

// gather moves all files to the part of worker 0, and adds this to the journals.
func (m *merging) gather() error {
	for _, f := range m.parts[0].beginning.Files {
		from, err := m.find(f)
		if m.away(err) {
			continue
		}
		if err != nil {
			return err
		}
		to := filepath.Join(m.dir(0), m.name(f))
		if from == to {
			continue
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	for i, p := range m.parts {
		j, err := openJournal(filepath.Join(m.dir(i), markerName), p.size)
		if err != nil {
			return err
		}
		if err := errors.Join(j.append(record{Merged: true}), j.close()); err != nil {
			return err
		}
	}
	return nil
}

// tensors returns the errors of all weights, in the order of the plan.
func (m *merging) tensors() []verify.Tensor {
	all := map[int]*doneTiles{}
	var order []int
	for _, p := range m.parts {
		for i, d := range p.done {
			all[i] = d
			order = append(order, i)
		}
	}
	slices.Sort(order)
	var tensors []verify.Tensor
	for _, i := range order {
		t, s := all[i].tensor(), newSums()
		if s.restore(all[i]) {
			s.report(&t)
		}
		tensors = append(tensors, t)
	}
	return tensors
}
