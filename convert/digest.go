package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/checksum"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// Every file of weights has a checksum.Record in its metadata: the checksums of its
// tensors, and of the values of the source that quantizing and decoding read. They are
// found as tiles are read and written. Checksums of copied and relabeled tensors stand
// for their source too. A finished result is compared with them, and so are the parts
// of workers before they are joined.

// placeholder returns the metadata in whose place the record of a file is written at
// the end of a run.
func (p *Plan) placeholder(tensors int, mine func(d Decision) bool) string {
	source := 0
	for _, d := range p.Decisions {
		if mine(d) && d.computed() {
			source++
		}
	}
	return checksum.Record{Plan: strings.Repeat("0", checksum.PlanDigits), Tensors: make([]uint64, tensors), Source: make([]uint64, source)}.String()
}

// computed reports whether the stored bytes are computed from the source's, so that
// the checksums of both are recorded.
func (d Decision) computed() bool { return d.Action == Quantize || d.Action == Decode }

// readsBF16 reports whether readTile returns the values of the weight as BF16.
func (d Decision) readsBF16() bool { return d.Action == Quantize && d.Weight.HasRowsBF16() }

// startSums begins the checksums of a unit of work.
func (s *scratch) startSums(r *run, d Decision) {
	s.written = s.written[:0]
	for _, stored := range d.Stored {
		info, _ := r.layouts[d.File].Lookup(stored.Name)
		s.written = append(s.written, *checksum.New(info.Bytes()))
	}
	rows, cols := d.Weight.Matrix()
	bits := format.F32.Bits()
	if d.readsBF16() {
		bits = format.BF16.Bits()
	}
	s.read = *checksum.New(int64(rows) * int64(cols) * int64(bits/8))
}

// endSums adds the checksums of a unit of work to the errors of its first tile.
func (s *scratch) endSums(all []sums) {
	first := &all[0]
	for i := range s.written {
		first.written = append(first.written, s.written[i].Value())
	}
	first.read = s.read.Value()
}

// addRead adds the values of a tile to the checksum of what is read, as bytes of the
// whole matrix.
func (s *scratch) addRead(t checkpoint.Tile, cols int, data []byte) {
	rows := t.To - t.From
	if rows == 0 || t.ToCol == t.FromCol {
		return
	}
	size := int64(len(data)) / int64(rows) / int64(t.ToCol-t.FromCol) // of an element
	if t.ToCol-t.FromCol == cols {
		s.read.Add(data, int64(t.From)*int64(cols)*size)
		return
	}
	width := int64(t.ToCol-t.FromCol) * size
	for i := range int64(rows) {
		s.read.Add(data[i*width:(i+1)*width], ((int64(t.From)+i)*int64(cols)+int64(t.FromCol))*size)
	}
}

// addValues is addRead for decoded values.
func (s *scratch) addValues(t checkpoint.Tile, cols int, x tensor.Dense) error {
	n := len(x.Data) * format.F32.Bits() / 8
	s.values = slices.Grow(s.values[:0], n)[:n]
	if err := tensor.ToBytes(s.values, x.Data, format.F32); err != nil {
		return err
	}
	s.addRead(t, cols, s.values)
	return nil
}

// recordOf returns the record of a file of the result, once all its tiles are done.
func (r *run) recordOf(f File, plan string) checksum.Record {
	record := checksum.Record{Plan: plan}
	written := map[string]uint64{}
	for i, d := range r.plan.Decisions {
		if d.File != f.Name {
			continue
		}
		for k, s := range d.Stored {
			if s.Value != nil {
				written[s.Name] ^= r.valueSum(d, s)
			} else if k < len(r.sums[i].written) {
				written[s.Name] ^= r.sums[i].written[k]
			}
		}
		if d.computed() {
			record.Source = append(record.Source, r.sums[i].read)
		}
	}
	for _, t := range f.Layout.Tensors() {
		record.Tensors = append(record.Tensors, written[t.Name])
	}
	return record
}

// valueSum returns the share of a value that the plan has in the checksum of its tensor.
func (r *run) valueSum(d Decision, s checkpoint.Stored) uint64 {
	info, _ := r.layouts[d.File].Lookup(s.Name)
	begin, _ := d.Extent(s)
	sum := checksum.New(info.Bytes())
	sum.Add(s.Value, begin)
	return sum.Value()
}

// fillRecords writes the records of the files, before they are closed.
func (r *run) fillRecords() error {
	plan := r.plan.fingerprint()
	for _, f := range r.plan.Files {
		if w, ok := r.writers[f.Name].(*safetensors.Writer); ok {
			if err := w.Fill(r.recordOf(f, plan).String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// nowhere is a target that drops what is written.
type nowhere struct{}

// WriteTensorAt drops the bytes.
func (nowhere) WriteTensorAt(string, []byte, int64) error { return nil }

// changedSource returns what is different in the source from what the records say was
// read, "" where nothing is. It reads the source whole and quantizes nothing.
func (p *Plan) changedSource(ctx context.Context, records map[string]checksum.Record, threads int) (string, error) {
	r := newRun(p, RunOptions{Threads: threads})
	for _, f := range p.Files {
		r.writers[f.Name] = nowhere{}
	}
	job := checkpoint.Job[[]sums]{
		Weights: len(p.Decisions),
		Tiling:  r.units,
		Work:    r.readAgain,
		Done: func(t checkpoint.Tile, all []sums) {
			for _, s := range all {
				r.sums[t.Weight].addSums(s)
			}
		},
		Threads: threads,
	}
	if err := job.Run(ctx); err != nil {
		return "", err
	}
	computed := map[string]bool{} // tensors with bytes that are not read from the source or the plan
	for _, d := range p.Decisions {
		for _, s := range d.Stored {
			computed[s.Name] = computed[s.Name] || d.computed() && s.Value == nil
		}
	}
	for _, f := range p.Files {
		want := r.recordOf(f, "")
		got, k := records[f.Name], 0
		for _, d := range p.Decisions {
			if d.File != f.Name || !d.computed() {
				continue
			}
			if k >= len(got.Source) || got.Source[k] != want.Source[k] {
				return fmt.Sprintf("%s of the source is not what the result was made from", d.Weight.Name), nil
			}
			k++
		}
		for i, t := range f.Layout.Tensors() {
			if i >= len(got.Tensors) || !computed[t.Name] && got.Tensors[i] != want.Tensors[i] {
				return fmt.Sprintf("%s is another in the source than in the result", t.Name), nil
			}
		}
	}
	return "", nil
}

// readAgain reads a unit of work for its checksums alone.
func (r *run) readAgain(t checkpoint.Tile) ([]sums, error) {
	d := r.plan.Decisions[t.Weight]
	if !d.computed() {
		return r.work(t)
	}
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	s.startSums(r, d)
	rows := r.tiling(t.Weight).TileRows
	for tile := t; tile.From < t.To; tile.From = tile.To {
		tile.To = min(tile.From+rows, t.To)
		if _, _, _, err := r.readTile(tile, d, s); err != nil {
			return nil, err
		}
	}
	all := []sums{{}}
	s.endSums(all)
	return all, nil
}

// errDamaged is the error of a tensor whose bytes are not those that were written.
var errDamaged = errors.New("its bytes are not those that were written")

// checkSums compares the tensors of a file with the checksums of its record, until ctx
// ends.
func checkSums[T any](ctx context.Context, tensors []T, want []uint64, threads int, sum func(T) (string, uint64, error)) error {
	if len(want) != len(tensors) {
		return fmt.Errorf("the record is of %d tensors, and the file has %d", len(want), len(tensors))
	}
	var lock sync.Mutex
	var first error
	at := len(tensors)
	parallel.For(len(tensors), 1, threads, func(from, to int) {
		for i := from; i < to; i++ {
			err := ctx.Err()
			if err == nil {
				var name string
				var got uint64
				if name, got, err = sum(tensors[i]); err == nil && got != want[i] {
					err = fmt.Errorf("tensor %s: %w", name, errDamaged)
				}
			}
			lock.Lock()
			if err != nil && i < at {
				first, at = err, i
			}
			lock.Unlock()
		}
	})
	return first
}
