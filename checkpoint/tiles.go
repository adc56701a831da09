package checkpoint

import (
	"context"
	"runtime"
	"sync"

	"github.com/microscale-go/microscale/quant"
)

// tileElements is how much of a weight is worked on at a time: 512 KiB of
// float32, which stays in a core's cache from reading to writing.
const tileElements = 1 << 17

// elementsAtOnce is how many elements all threads together work on: about 150 MB
// with their bytes, codes and decoded values.
const elementsAtOnce = 64 * tileElements

// TileRows returns how many rows make a tile of the weight for the given block
// formats: about tileElements, whole blocks, at least one.
func (w *Weight) TileRows(formats ...quant.Format) int {
	_, cols := w.Matrix()
	band := 1
	for _, f := range formats {
		band = max(band, f.Block.Rows) // extents over rows are powers of two, so the largest is a multiple of all
	}
	return max(1, tileElements/max(1, band*cols)) * band
}

// A Tile is rows [From, To) of one of the weights of a job.
type Tile struct {
	Weight   int // the number of the weight in the job
	From, To int
}

// A Job is work on all tiles of some weights, on several threads, in memory
// that depends neither on the number of tiles nor on that of threads. Done is
// called in the order of the tiles, one at a time, so what it sums up is the
// same for any number of threads.
type Job[R any] struct {
	Weights int
	Extent  func(weight int) (rows, tileRows, cols int)
	Work    func(Tile) (R, error)
	Done    func(Tile, R)
	Threads int // goroutines; 0: one per processor
}

// Run does the job. It returns the first error of Work in the order of the
// tiles, or that of ctx; after an error no tile is begun.
func (j *Job[R]) Run(ctx context.Context) error {
	threads := j.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	r := &jobRun[R]{Job: j, ctx: ctx, room: elementsAtOnce, ended: map[int]outcome[R]{}}
	r.changed.L = &r.lock
	var wg sync.WaitGroup
	for range threads {
		wg.Go(r.loop)
	}
	wg.Wait()
	return r.err
}

// A jobRun is what the goroutines of a job share, under the lock.
type jobRun[R any] struct {
	*Job[R]
	ctx     context.Context
	lock    sync.Mutex
	changed sync.Cond // there is more room, or the job has ended

	next   Tile // to begin; To is not set
	begun  int  // tiles
	room   int  // elements that may be worked on beside those that are
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
		r.room += size
		r.ended[number] = outcome[R]{tile, result, err}
		r.failed = r.failed || err != nil
		r.settle()
		r.changed.Broadcast()
	}
}

// begin takes the next tile, its number and its elements, as soon as there is
// room for it. A tile larger than all room is begun alone.
func (r *jobRun[R]) begin() (tile Tile, number, size int, ok bool) {
	for {
		rows, tileRows, cols := 0, 0, 0
		for ; r.next.Weight < r.Weights; r.next = (Tile{Weight: r.next.Weight + 1}) {
			if rows, tileRows, cols = r.Extent(r.next.Weight); r.next.From < rows {
				break
			}
		}
		if err := r.ctx.Err(); err != nil && r.err == nil {
			r.err, r.failed = err, true
		}
		if r.failed || r.next.Weight >= r.Weights {
			return Tile{}, 0, 0, false
		}
		tile = Tile{r.next.Weight, r.next.From, min(r.next.From+tileRows, rows)}
		size = min((tile.To-tile.From)*cols, elementsAtOnce)
		if size <= r.room {
			break
		}
		r.changed.Wait()
	}
	number = r.begun
	r.begun++
	r.room -= size
	r.next.From = tile.To
	return tile, number, size, true
}

// settle calls Done for the tiles whose turn has come.
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
