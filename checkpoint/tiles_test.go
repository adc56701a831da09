package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/quant"
)

// extents are rows, rows of a tile and columns of weights, some of them empty.
var extents = [][3]int{{0, 1, 5}, {10, 3, 7}, {1, 100, 1}, {0, 0, 0}, {64, 1, 100}, {5, 5, 3 * elementsAtOnce}, {1, 1, 1}}

func jobExtent(i int) (rows, tileRows, cols int) { return extents[i][0], extents[i][1], extents[i][2] }

// TestJob: every row is worked on once, and Done sees the tiles in their order,
// on any number of threads.
func TestJob(t *testing.T) {
	var want []Tile
	for i, e := range extents {
		for from := 0; from < e[0]; from += e[1] {
			want = append(want, Tile{i, from, min(from+e[1], e[0])})
		}
	}
	for _, threads := range []int{0, 1, 2, 7, 64} {
		var got []Tile
		job := Job[Tile]{
			Weights: len(extents), Extent: jobExtent, Threads: threads,
			Work: func(t Tile) (Tile, error) { return t, nil },
			Done: func(t, result Tile) {
				if t != result {
					got = append(got, Tile{-1, -1, -1})
				}
				got = append(got, t)
			},
		}
		if err := job.Run(context.Background()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d threads: tiles %v, %v, want %v", threads, got, err, want)
		}
	}
}

// TestJobRoom: no more than elementsAtOnce are worked on at a time, and never
// two tiles where one takes all of that.
func TestJobRoom(t *testing.T) {
	for _, share := range []int{1, 2, 4} {
		cols := elementsAtOnce / share
		var running, most atomic.Int64
		job := Job[int]{
			Weights: 1, Threads: 16,
			Extent: func(int) (rows, tileRows, columns int) { return 32, 1, cols },
			Work: func(Tile) (int, error) {
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(time.Millisecond) // so that others could begin
				running.Add(-1)
				return 0, nil
			},
			Done: func(Tile, int) {},
		}
		if err := job.Run(context.Background()); err != nil || most.Load() != int64(share) {
			t.Errorf("%d tiles were worked on at a time, want %d: %v", most.Load(), share, err)
		}
	}
}

// TestJobFails: the error is that of the first tile that failed, whichever
// failed first; Done sees those before it; no tile is begun after it.
func TestJobFails(t *testing.T) {
	for _, threads := range []int{1, 4} {
		var begun, done atomic.Int64
		job := Job[int]{
			Weights: 1, Threads: threads,
			Extent: func(int) (rows, tileRows, cols int) { return 1000, 1, 1 },
			Work: func(t Tile) (int, error) {
				begun.Add(1)
				if t.From >= 10 {
					return 0, fmt.Errorf("row %d", t.From)
				}
				return 0, nil
			},
			Done: func(Tile, int) { done.Add(1) },
		}
		if err := job.Run(context.Background()); err == nil || err.Error() != "row 10" || done.Load() != 10 || begun.Load() > int64(10+threads) {
			t.Errorf("%d threads: error %v, %d tiles begun, %d done", threads, err, begun.Load(), done.Load())
		}
	}
}

// TestJobCanceled: no tile is begun after the context ended.
func TestJobCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var begun atomic.Int64
	job := Job[int]{
		Weights: 1, Threads: 2,
		Extent: func(int) (rows, tileRows, cols int) { return 1000, 1, 1 },
		Work: func(Tile) (int, error) {
			if begun.Add(1) == 5 {
				cancel()
			}
			return 0, nil
		},
		Done: func(Tile, int) {},
	}
	if err := job.Run(ctx); !errors.Is(err, context.Canceled) || begun.Load() > 6 {
		t.Errorf("error %v, %d tiles begun", err, begun.Load())
	}
}

// TestTileRows: tiles are whole bands of the blocks of all formats.
func TestTileRows(t *testing.T) {
	for _, tc := range []struct {
		shape   []int64
		formats []quant.Format
		want    int
	}{
		{[]int64{4096, 1024}, nil, 128},
		{[]int64{4096, 1024}, []quant.Format{{}, quant.MXFP8}, 128},
		{[]int64{4096, 1000}, []quant.Format{quant.MXFP8}, 131},
		{[]int64{4096, 1000}, []quant.Format{quant.MXFP8x32}, 128},
		{[]int64{4096, 1000}, []quant.Format{quant.FP8Block, quant.NVFP4x16}, 128},
		{[]int64{4096, 100000}, []quant.Format{quant.FP8Block}, 128},
		{[]int64{4096, 1000000}, []quant.Format{quant.FP8Row}, 1},
		{[]int64{4096}, nil, 32},
		{[]int64{16, 0}, nil, tileElements},
	} {
		if got := (&Weight{Shape: tc.shape}).TileRows(tc.formats...); got != tc.want {
			t.Errorf("%v in %v: %d rows, want %d", tc.shape, tc.formats, got, tc.want)
		}
	}
}
