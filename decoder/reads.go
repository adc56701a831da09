package decoder

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/parallel"
)

// A pace is how weights are read.
type pace struct {
	readers int // goroutines: enough for several requests to a disk at a time
	bytes   int // about the size of a read
	inPlace int // about the size of a read that needs no conversion
}

// Disks reach their full speed with several reads of a few megabytes in flight, and the readers of a
// model finish together. Layers of a stream are read while others compute: a goroutine that waits for
// the disk keeps its processor from them for milliseconds, until the scheduler notices. So these reads
// are few and large.
var (
	loadPace   = pace{4, 4 << 20, 4 << 20}
	streamPace = pace{2, 4 << 20, 32 << 20}
)

// A rowRead reads consecutive rows of a weight.
type rowRead struct {
	weight *checkpoint.Weight
	row    int // the first
	read   func() error
	of     *reading // nil: nothing follows
}

// A reading calls complete after the last of its reads.
type reading struct {
	left     atomic.Int64 // reads
	complete func() error
}

// do reads the rows.
func (x *rowRead) do(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.read(); err != nil {
		return err
	}
	if x.of != nil && x.of.left.Add(-1) == 0 {
		return x.of.complete()
	}
	return nil
}

// runReads does reads in the order of the files, several at a time. It returns the first error in
// this order, and starts no read after an error.
func (r *reader) runReads(ctx context.Context, list []rowRead) error {
	slices.SortStableFunc(list, func(a, b rowRead) int {
		return cmp.Or(cmp.Compare(r.places[a.weight], r.places[b.weight]), cmp.Compare(a.row, b.row))
	})
	return each(len(list), r.pace.readers, func(i int) error { return list[i].do(ctx) })
}

// each calls f for the numbers below n, in order, readers at a time. It returns the error of the smallest
// number, and starts no call after an error.
func each(n, readers int, f func(i int) error) error {
	failed := make([]error, n)
	var stop atomic.Bool
	parallel.For(n, 1, readers, func(from, to int) {
		for i := from; i < to && !stop.Load(); i++ {
			if failed[i] = f(i); failed[i] != nil {
				stop.Store(true)
			}
		}
	})
	return cmp.Or(failed...)
}

// split returns the reads of a tile of a weight. read does one: of rows [from, to) of the tile. A row has
// the given bytes, and reads begin at multiples of step rows.
func (r *reader) split(w *checkpoint.Weight, tile checkpoint.Tile, bytes, step int, read func(from, to int) error) (list []rowRead) {
	n := tile.To - tile.From
	size := r.pace.bytes
	if w.Quantized() || w.HasRowsBF16() {
		size = r.pace.inPlace
	}
	if step = max(1, size/max(1, bytes)/step) * step; w.Transposed() {
		step = n // its rows are columns of the file: parts of them would be short reads
	}
	for from := 0; from < n; from += step {
		list = append(list, rowRead{weight: w, row: tile.From + from, read: func() error { return read(from, min(from+step, n)) }})
	}
	return list
}
