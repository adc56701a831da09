package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/tensor"
)

// Every file of weights has a checksum.Record in its metadata: the checksums of its tensors,
// and of the values of the source that were quantized or decoded. They are computed as tiles
// are read and written. The checksum of a copied or relabeled tensor covers its source too. A
// resumed run compares a finished result with its records, and Merge the parts of workers.

// placeholder returns a record of zeros, which the record of a file replaces at the end of a
// run.
func (p *Plan) placeholder(tensors int, mine func(d decision) bool) string {
	source := 0
	for _, d := range p.decisions {
		if mine(d) && d.computed() {
			source++
		}
	}
	return checksum.Record{Plan: strings.Repeat("0", checksum.PlanDigits), Tensors: make([]uint64, tensors),
		Source: make([]uint64, source)}.String()
}

// computed reports whether the stored bytes differ from the source's, so that the record has
// checksums of both.
func (d decision) computed() bool { return d.action == Quantize || d.action == Decode }

// readsBF16 reports whether readTile returns the values of the weight as BF16.
func (d decision) readsBF16() bool { return d.action == Quantize && d.HasRowsBF16() }

// startSums starts the checksums of the batch.
func (b *batch) startSums() {
	b.written = b.written[:0]
	for _, stored := range b.d.stored {
		info, _ := b.run.layouts[b.d.file].Lookup(stored.Name)
		b.written = append(b.written, *checksum.New(info.Bytes()))
	}
	rows, cols := b.d.Matrix()
	bits := format.F32.Bits()
	if b.d.readsBF16() {
		bits = format.BF16.Bits()
	}
	b.read = *checksum.New(int64(rows) * int64(cols) * int64(bits/8))
}

// endSums adds the checksums of the batch to s.
func (b *batch) endSums(s *sums) {
	for i := range b.written {
		s.written = append(s.written, b.written[i].Value())
	}
	s.read = b.read.Value()
}

// addRead adds the values of a tile to the checksum of the source, as bytes of the whole
// matrix.
func (b *batch) addRead(t checkpoint.Tile, data []byte) {
	rows, width := int64(t.To-t.From), int64(t.ToCol-t.FromCol)
	if rows == 0 || width == 0 {
		return
	}
	size := int64(len(data)) / rows / width // of an element
	_, n := b.d.Matrix()
	cols := int64(n)
	if width == cols {
		b.read.Add(data, int64(t.From)*cols*size)
		return
	}
	for i := range rows {
		b.read.Add(data[i*width*size:(i+1)*width*size], ((int64(t.From)+i)*cols+int64(t.FromCol))*size)
	}
}

// addValues is addRead for decoded values.
func (b *batch) addValues(t checkpoint.Tile, x tensor.Dense) error {
	n := len(x.Data) * format.F32.Bits() / 8
	b.values = slices.Grow(b.values[:0], n)[:n]
	if err := tensor.ToBytes(b.values, x.Data, format.F32); err != nil {
		return err
	}
	b.addRead(t, b.values)
	return nil
}

// recordOf returns the record of a file of the result, once all its tiles are done.
func (r *run) recordOf(f file, plan string) checksum.Record {
	record := checksum.Record{Plan: plan}
	written := map[string]uint64{}
	for i, d := range r.plan.decisions {
		if d.file != f.name {
			continue
		}
		for k, s := range d.stored {
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
	for _, t := range f.layout.Tensors() {
		record.Tensors = append(record.Tensors, written[t.Name])
	}
	return record
}

// valueSum returns the contribution of a value that the plan knows to the checksum of its tensor.
func (r *run) valueSum(d decision, s checkpoint.Stored) uint64 {
	info, _ := r.layouts[d.file].Lookup(s.Name)
	begin, _ := d.extent(s)
	sum := checksum.New(info.Bytes())
	sum.Add(s.Value, begin)
	return sum.Value()
}

// fillRecords writes the records into the files, before they are closed.
func (r *run) fillRecords() error {
	plan := r.plan.fingerprint()
	for _, f := range r.plan.files {
		if w, ok := r.writers[f.name].(*safetensors.Writer); ok {
			if err := w.Fill(r.recordOf(f, plan).String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// nowhere is a target that discards all bytes.
type nowhere struct{}

// WriteTensorAt discards the bytes.
func (nowhere) WriteTensorAt(string, []byte, int64) error { return nil }

// changedSource returns the first difference between the source and the checksums of the
// source in the records; "" if there is none. It reads the whole source and quantizes nothing.
func (p *Plan) changedSource(ctx context.Context, records map[string]checksum.Record, o RunOptions) (string, error) {
	r := newRun(p, RunOptions{Progress: o.Progress, Threads: o.Threads})
	for _, f := range p.files {
		r.writers[f.name] = nowhere{}
	}
	job := checkpoint.Job[[]sums]{
		Weights: len(p.decisions),
		Tiling:  r.batches,
		Work:    r.readAgain,
		Done: func(t checkpoint.Tile, all []sums) {
			for _, s := range all {
				r.sums[t.Weight].addSums(s)
			}
			r.progress(stageAgain, t)
		},
		Threads: o.Threads,
	}
	if err := job.Run(ctx); err != nil {
		return "", err
	}
	computed := map[string]bool{} // tensors with bytes that are neither the source's nor known to the plan
	for _, d := range p.decisions {
		for _, s := range d.stored {
			computed[s.Name] = computed[s.Name] || d.computed() && s.Value == nil
		}
	}
	for _, f := range p.files {
		want := r.recordOf(f, "")
		got, k := records[f.name], 0
		for _, d := range p.decisions {
			if d.file != f.name || !d.computed() {
				continue
			}
			if k >= len(got.Source) || got.Source[k] != want.Source[k] {
				return fmt.Sprintf("%s of the source changed", d.Name), nil
			}
			k++
		}
		for i, t := range f.layout.Tensors() {
			if i >= len(got.Tensors) || !computed[t.Name] && got.Tensors[i] != want.Tensors[i] &&
				!calibration.Trained(p.Method(), t.Name, t.Shape) {
				return fmt.Sprintf("%s differs between source and result", t.Name), nil
			}
		}
	}
	return "", nil
}

// readAgain reads a batch only for its checksums.
func (r *run) readAgain(t checkpoint.Tile) ([]sums, error) {
	if !r.plan.decisions[t.Weight].computed() {
		return r.work(t)
	}
	b := r.begin(t)
	defer r.scratch.Put(b)
	for tile := range b.tiles() {
		if _, _, err := b.readTile(tile); err != nil {
			return nil, err
		}
	}
	all := []sums{{}}
	b.endSums(&all[0])
	return all, nil
}

// checkSums compares the tensors of a file with the checksums of its record. The error wraps
// ErrDamaged if one differs.
func checkSums[T any](ctx context.Context, tensors []T, want []uint64, threads int, sum func(T) (string, uint64, error)) error {
	if len(want) != len(tensors) {
		return fmt.Errorf("the record has checksums of %d tensors, but the file has %d tensors", len(want), len(tensors))
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
					err = fmt.Errorf("tensor %s: %w", name, ErrDamaged)
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
