package checkpoint

import (
	"context"
	"iter"
	"math/bits"
	"sync"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
)

// tileElements is the number of elements in a tile: 512 KiB of float32, which fit in a core's
// cache.
const tileElements = 1 << 17

// wideElements is the size from which rows, or rows of a block, are divided into several tiles.
const wideElements = 8 * tileElements

// columnStep divides the columns between tiles: whole bytes of codes, and whole blocks for
// measuring errors.
const columnStep = 128

// elementsAtOnce is the number of elements that all threads work on at a time: about 150 MB with
// their bytes, codes and decoded values.
const elementsAtOnce = 64 * tileElements

// A Tiling divides a matrix into tiles. Those at its edges may be smaller.
type Tiling struct {
	Rows, Cols         int // of the matrix
	TileRows, TileCols int // at least 1 each, unless there are no rows or columns
}

// Tiling returns the tiles for working in the given block formats: whole blocks of all of them,
// about tileElements, with columns divided only if rows are wide. A format with one scale per row
// needs whole rows: only then does memory grow with the weight.
func (w *Weight) Tiling(formats ...quant.Format) Tiling {
	rows, cols := w.Matrix()
	height, step, wholeRows := 1, columnStep, false
	for _, f := range formats {
		height, step = lcm(height, max(1, f.Block.Rows)), lcm(step, max(1, f.Block.Cols))
		wholeRows = wholeRows || f.Scaled() && f.Block.Cols == 0 && !f.PerTensor()
	}
	elements := tileElements
	if w.Transposed() || w.view != nil && w.view.of.Transposed() || w.coded != nil && w.coded.quark != nil && w.coded.quark.grouped() {
		elements = wideElements // its rows are columns of the file: long runs of them
	}
	t := Tiling{rows, cols, max(1, elements/max(1, height*cols)) * height, max(1, cols)}
	if height*cols > wideElements && !wholeRows {
		t.TileCols = max(1, wideElements/(height*step)) * step
	}
	return t
}

// Flat returns the tiles of the weight as one row, for copying and comparing bytes. Tiles end
// between bytes.
func (w *Weight) Flat() Tiling {
	rows, cols := w.Matrix()
	return Tiling{1, rows * cols, 1, tileElements}
}

// lcm returns the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Share returns the share of a tile in n bytes. The shares of all tiles sum to n.
func (t Tiling) Share(tile Tile, n int64) int64 {
	before := tile.From * t.Cols // elements of the rows above
	upTo := func(col int) int64 {
		hi, lo := bits.Mul64(uint64(n), uint64(before+(tile.To-tile.From)*col))
		share, _ := bits.Div64(hi, lo, uint64(t.Rows*t.Cols))
		return int64(share)
	}
	return upTo(tile.ToCol) - upTo(tile.FromCol)
}

// A Tile is rows [From, To) and columns [FromCol, ToCol) of one weight of a job.
type Tile struct {
	Weight         int // the number of the weight in the job
	From, To       int
	FromCol, ToCol int
}

// First reports whether the tile is the first of its weight.
func (t Tile) First() bool { return t.From == 0 && t.FromCol == 0 }

// A Span is a contiguous run of units: units [From, To) of a tile are at units [At, At+To-From)
// of the tensor.
type Span struct {
	At       int64
	From, To int
}

// Spans returns the spans of the codes of a tile in bytes, or of its scales in scales: one span
// per row, or a single one for whole rows. The weight has cols columns in format f, and the
// tile begins at a block boundary.
func (t Tile) Spans(f quant.Format, p Part, cols int) iter.Seq[Span] {
	if p == Scales {
		_, width := f.ScaleShape(t.To, cols)
		toRow, toCol := f.ScaleShape(t.To, t.ToCol)
		fromRow, fromCol := 0, 0
		if f.Block.Rows > 0 {
			fromRow = t.From / f.Block.Rows
		}
		if f.Block.Cols > 0 {
			fromCol = t.FromCol / f.Block.Cols
		}
		return spans(width, fromRow, toRow, fromCol, toCol)
	}
	bytes := func(n int) int { return f.PaddedCols(n) * f.Element.StoredBits() / 8 }
	return spans(bytes(cols), t.From, t.To, bytes(t.FromCol), bytes(t.ToCol))
}

// CodeSpans is [Tile.Spans] for the codes of weights in format f of the convention, which may store partial last blocks of rows
// without zeros.
func (c *Convention) CodeSpans(f quant.Format, cols int, t Tile) iter.Seq[Span] {
	if c.scheme(f).partial && f.PaddedCols(cols) != cols {
		return croppedSpans(f, cols, t)
	}
	return t.Spans(f, Codes, cols)
}

// croppedSpans is [Tile.Spans] for codes of one byte without zeros in partial last blocks.
func croppedSpans(f quant.Format, cols int, t Tile) iter.Seq[Span] {
	n := t.ToCol - t.FromCol
	width := f.PaddedCols(n)
	return func(yield func(Span) bool) {
		for i := range t.To - t.From {
			if !yield(Span{int64(t.From+i)*int64(cols) + int64(t.FromCol), i * width, i*width + n}) {
				return
			}
		}
	}
}

// DenseSpans returns the spans of the elements of a tile in an unquantized matrix of cols
// columns.
func (t Tile) DenseSpans(cols int) iter.Seq[Span] {
	return spans(cols, t.From, t.To, t.FromCol, t.ToCol)
}

// spans returns the spans of a rectangle of a matrix of the given width.
func spans(width, fromRow, toRow, fromCol, toCol int) iter.Seq[Span] {
	each := toCol - fromCol
	return func(yield func(Span) bool) {
		if each == width {
			yield(Span{int64(fromRow) * int64(width), 0, (toRow - fromRow) * each})
			return
		}
		for i := range toRow - fromRow {
			if !yield(Span{int64(fromRow+i)*int64(width) + int64(fromCol), i * each, (i + 1) * each}) {
				return
			}
		}
	}
}

// Tiles returns the tiles of a weight in their order.
func (t Tiling) Tiles(weight int) iter.Seq[Tile] {
	return func(yield func(Tile) bool) {
		if t.Cols <= 0 {
			return
		}
		for row := 0; row < t.Rows; row += t.TileRows {
			for col := 0; col < t.Cols; col += t.TileCols {
				if !yield(Tile{weight, row, min(row+t.TileRows, t.Rows), col, min(col+t.TileCols, t.Cols)}) {
					return
				}
			}
		}
	}
}

// Next returns the origin of the tile that follows t in a matrix of cols columns: a tile
// without To and ToCol.
func (t Tile) Next(cols int) Tile {
	if t.ToCol < cols {
		return Tile{Weight: t.Weight, From: t.From, FromCol: t.ToCol}
	}
	return Tile{Weight: t.Weight, From: t.To}
}

// A Job is work on all tiles of some weights on several threads. Its memory depends neither on
// the number of tiles nor on the number of threads. Done is called in the order of the tiles, one
// call at a time, so that sums do not depend on the number of threads.
type Job[R any] struct {
	Weights int
	Tiling  func(weight int) Tiling
	Work    func(Tile) (R, error)
	Done    func(Tile, R)
	Start   Tile // the first tile, by weight, row and column; those before it are done
	Threads int  // maximum goroutines; 0: one per processor
}

// Run does the job. It returns the first error of Work in the order of the tiles, or that of ctx.
// After an error it starts no tile.
func (j *Job[R]) Run(ctx context.Context) error {
	r := &jobRun[R]{Job: j, ctx: ctx, next: j.Start, free: elementsAtOnce, ended: map[int]outcome[R]{}}
	r.changed.L = &r.lock
	var wg sync.WaitGroup
	for range j.goroutines() {
		wg.Go(r.loop)
	}
	wg.Wait()
	return r.err
}

// goroutines returns Threads, at most the number of tiles of the weights that are left, at least 1.
func (j *Job[R]) goroutines() int {
	threads, tiles := parallel.Threads(j.Threads), 0
	for w := j.Start.Weight; w < j.Weights && tiles < threads; w++ {
		if t := j.Tiling(w); t.Rows > 0 && t.Cols > 0 {
			tiles += (t.Rows + t.TileRows - 1) / t.TileRows * ((t.Cols + t.TileCols - 1) / t.TileCols)
		}
	}
	return max(1, min(threads, tiles))
}

// A jobRun is the state that the goroutines of a job share, under the lock.
type jobRun[R any] struct {
	*Job[R]
	ctx     context.Context
	lock    sync.Mutex
	changed sync.Cond // free has grown, or the job has ended

	next   Tile // to begin; its ends are not set
	begun  int  // tiles
	free   int  // elements that may be started
	failed bool // begin no more

	ended map[int]outcome[R] // tiles that ended before an earlier one did
	done  int                // tiles that Done has seen
	err   error              // of the first tile that failed
}

type outcome[R any] struct {
	tile   Tile
	result R
	err    error
}

func (r *jobRun[R]) loop() {
	r.lock.Lock()
	defer r.lock.Unlock()
	for {
		tile, number, size, ok := r.begin()
		if !ok {
			return
		}
		r.lock.Unlock()
		result, err := r.Work(tile)
		r.lock.Lock()
		r.free += size
		r.ended[number] = outcome[R]{tile, result, err}
		r.failed = r.failed || err != nil
		r.settle()
		r.changed.Broadcast()
	}
}

// begin takes the next tile as soon as the limit of elements allows it. A tile larger than the
// limit runs alone.
func (r *jobRun[R]) begin() (tile Tile, number, size int, ok bool) {
	for {
		var tiling Tiling
		for ; r.next.Weight < r.Weights; r.next = (Tile{Weight: r.next.Weight + 1}) {
			if tiling = r.Tiling(r.next.Weight); r.next.From < tiling.Rows && tiling.Cols > 0 {
				break
			}
		}
		if err := r.ctx.Err(); err != nil && r.err == nil {
			r.err, r.failed = err, true
		}
		if r.failed || r.next.Weight >= r.Weights {
			return Tile{}, 0, 0, false
		}
		tile = r.next
		tile.To = min(tile.From+tiling.TileRows, tiling.Rows)
		tile.ToCol = min(tile.FromCol+tiling.TileCols, tiling.Cols)
		size = min((tile.To-tile.From)*(tile.ToCol-tile.FromCol), elementsAtOnce)
		if size <= r.free {
			r.next = tile.Next(tiling.Cols)
			break
		}
		r.changed.Wait()
	}
	number = r.begun
	r.begun++
	r.free -= size
	return tile, number, size, true
}

// settle calls Done for the completed tiles that are next in order.
func (r *jobRun[R]) settle() {
	for {
		o, ok := r.ended[r.done]
		if !ok {
			return
		}
		delete(r.ended, r.done)
		r.done++
		if o.err != nil && r.err == nil {
			r.err = o.err
		}
		if r.err == nil {
			r.Done(o.tile, o.result)
		}
	}
}
