package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/quant"
)

// tilings are those of several weights, some of them empty.
var tilings = []Tiling{
	{0, 5, 1, 5}, {10, 7, 3, 7}, {1, 1, 100, 1}, {0, 0, 1, 1}, {3, 0, 1, 1}, {64, 100, 1, 100}, {5, 3 * elementsAtOnce, 5, 3 * elementsAtOnce},
	{}, {5, 10, 2, 4}, {1, 9, 1, 3}, {1, 1, 1, 1},
}

func tiling(i int) Tiling { return tilings[i] }

// TestJob: Work gets every element once, and Done gets the tiles in order, for any number of
// threads. The shares of the tiles sum to the total.
func TestJob(t *testing.T) {
	var want []Tile
	for i, e := range tilings {
		if e.Rows*e.Cols == 0 {
			continue
		}
		const n = 1<<50 + 12345
		shares := int64(0)
		for from := 0; from < e.Rows; from += e.TileRows {
			for col := 0; col < e.Cols; col += e.TileCols {
				tile := Tile{i, from, min(from+e.TileRows, e.Rows), col, min(col+e.TileCols, e.Cols)}
				want = append(want, tile)
				shares += e.Share(tile, n)
				exact := float64(n) * float64((tile.To-tile.From)*(tile.ToCol-tile.FromCol)) / float64(e.Rows*e.Cols)
				if share := e.Share(tile, n); math.Abs(float64(share)-exact) > 2 {
					t.Errorf("%+v of %+v has a share of %d, want %g", tile, e, share, exact)
				}
			}
		}
		if shares != n {
			t.Errorf("%+v: the shares sum up to %d, want %d", e, shares, n)
		}
	}
	for _, threads := range []int{0, 1, 2, 7, 64, 1 << 40} {
		var got []Tile
		job := Job[Tile]{
			Weights: len(tilings), Tiling: tiling, Threads: threads,
			Work: func(t Tile) (Tile, error) { return t, nil },
			Done: func(t, result Tile) {
				if t != result {
					got = append(got, Tile{Weight: -1})
				}
				got = append(got, t)
			},
		}
		if n := job.goroutines(); n > len(want) {
			t.Fatalf("%d threads: got %d goroutines, want at most %d", threads, n, len(want))
		}
		if err := job.Run(context.Background()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d threads: tiles %v, %v, want %v", threads, got, err, want)
		}
	}
}

// TestJobLimit: elementsAtOnce are in progress at a time, and never more. A tile larger than that runs
// alone.
func TestJobLimit(t *testing.T) {
	for _, share := range []int{1, 2, 4} {
		cols := elementsAtOnce / share
		var running, most atomic.Int64
		full, whole := context.WithTimeout(t.Context(), 10*time.Second) // ends when as many run as may
		job := Job[int]{
			Weights: 1, Threads: 16,
			Tiling: func(int) Tiling { return Tiling{32, cols, 1, cols} },
			Work: func(Tile) (int, error) {
				n := running.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				if n == int64(share) {
					whole()
				}
				<-full.Done()
				time.Sleep(time.Millisecond) // so that more could begin
				running.Add(-1)
				return 0, nil
			},
			Done: func(Tile, int) {},
		}
		if err := job.Run(context.Background()); err != nil || most.Load() != int64(share) {
			t.Errorf("%d tiles were worked on at a time, want %d: %v", most.Load(), share, err)
		}
		whole()
	}
}

// TestJobFails: the error is that of the first tile in order that failed. Done gets only the
// tiles before it, and no tile starts after an error.
func TestJobFails(t *testing.T) {
	for _, threads := range []int{1, 4} {
		var begun, done atomic.Int64
		job := Job[int]{
			Weights: 1, Threads: threads,
			Tiling: func(int) Tiling { return Tiling{1000, 1, 1, 1} },
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

// TestJobFailsTwice: if two tiles in progress both fail, the error is that of the first in
// order, whichever ends first.
func TestJobFailsTwice(t *testing.T) {
	for first := range 2 {
		begun, ended := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, make(chan struct{})
		job := Job[int]{
			Weights: 1, Threads: 2,
			Tiling: func(int) Tiling { return Tiling{2, 1, 1, 1} },
			Work: func(t Tile) (int, error) {
				close(begun[t.From])
				<-begun[1-t.From]
				if t.From == first {
					defer close(ended)
				} else {
					<-ended
				}
				return 0, fmt.Errorf("row %d", t.From)
			},
			Done: func(tile Tile, _ int) { t.Errorf("done with row %d", tile.From) },
		}
		if err := job.Run(context.Background()); err == nil || err.Error() != "row 0" {
			t.Errorf("row %d ends first: error %v", first, err)
		}
	}
}

// TestJobCanceled: no tile starts after the context ends.
func TestJobCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var begun atomic.Int64
	job := Job[int]{
		Weights: 1, Threads: 2,
		Tiling: func(int) Tiling { return Tiling{1000, 1, 1, 1} },
		Work: func(Tile) (int, error) {
			if n := begun.Add(1); n == 5 {
				cancel()
			} else if n > 5 {
				<-ctx.Done() // begun before that
			}
			return 0, nil
		},
		Done: func(Tile, int) {},
	}
	if err := job.Run(ctx); !errors.Is(err, context.Canceled) || begun.Load() > 6 {
		t.Errorf("error %v, %d tiles begun", err, begun.Load())
	}
}

// TestTiling: tiles are whole blocks of all formats. They exceed elementsAtOnce only for
// formats with one scale per row.
func TestTiling(t *testing.T) {
	for _, tc := range []struct {
		shape      []int64
		formats    []quant.Format
		rows, cols int
	}{
		{[]int64{4096, 1024}, nil, 128, 1024},
		{[]int64{4096, 1024}, []quant.Format{{}, quant.MXFP8}, 128, 1024},
		{[]int64{4096, 1000}, []quant.Format{quant.MXFP8}, 131, 1000},
		{[]int64{4096, 1000}, []quant.Format{quant.MXFP8x32}, 128, 1000},
		{[]int64{4096, 1000}, []quant.Format{quant.FP8Block, quant.NVFP4x16}, 128, 1000},
		{[]int64{4096, 1000}, []quant.Format{{Name: "study", Element: quant.MXFP8.Element, Scale: quant.MXFP8.Scale,
			Block: quant.Shape{Rows: 3, Cols: 8}}, quant.NVFP4x16}, 96, 1000},
		{[]int64{4096, 8192}, []quant.Format{quant.FP8Block}, 128, 8192},
		{[]int64{4096, 100000}, []quant.Format{quant.FP8Block}, 128, 8192},
		{[]int64{4096, wideElements}, []quant.Format{quant.MXFP8}, 1, wideElements},
		{[]int64{4096, wideElements + 1}, []quant.Format{quant.MXFP8}, 1, wideElements},
		{[]int64{2, 300_000_000}, []quant.Format{{Name: "study", Element: quant.MXFP8.Element, Scale: quant.MXFP8.Scale,
			Block: quant.Shape{Rows: 1, Cols: 96}}}, 1, 1048320},
		{[]int64{4096, 1000000}, []quant.Format{quant.FP8Row}, 1, 1000000},
		{[]int64{2, 300_000_000}, []quant.Format{quant.FP8Row}, 1, 300_000_000},
		{[]int64{2, 300_000_000}, []quant.Format{quant.FP8Tensor}, 1, wideElements},
		{[]int64{300_000_000}, nil, 1, wideElements},
		{[]int64{4096}, nil, 32, 4096},
		{[]int64{}, nil, tileElements, 1},
		{[]int64{16, 0}, nil, tileElements, 1},
	} {
		w := &Weight{Shape: tc.shape}
		rows, cols := w.Matrix()
		if got, want := w.Tiling(tc.formats...), (Tiling{rows, cols, tc.rows, tc.cols}); got != want {
			t.Errorf("%v in %v: %v, want %v", tc.shape, tc.formats, got, want)
		}
	}
	for scheme, rows := range map[string]int{"per_group": 1024, "per_channel": 128} { // columns of groups are runs in the file
		w := &Weight{Shape: []int64{4096, 1024}, coded: &coded{quark: &quarkLayout{scheme: scheme}}}
		if got := w.Tiling().TileRows; got != rows {
			t.Errorf("%s: tiles of %d rows, want %d", scheme, got, rows)
		}
	}
	if got, want := (&Weight{Shape: []int64{7, 100, 300_000}}).Flat(), (Tiling{1, 210_000_000, 1, tileElements}); got != want {
		t.Errorf("as one row: %v, want %v", got, want)
	}
}

// TestSpans: the spans of all tiles cover the codes and scales of a tensor once, in the right
// places.
func TestSpans(t *testing.T) {
	const rows, cols = 300, 700
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		blockRows, blockCols := max(1, f.Block.Rows), max(1, f.Block.Cols)
		for _, tiling := range []Tiling{{rows, cols, 128, cols}, {rows, cols, 2 * blockRows, 2 * blockCols}, {rows, cols, rows, 256}} {
			if f.Block == quant.FP8Row.Block && tiling.TileCols < cols {
				continue // one scale for all columns
			}
			whole, err := quant.NewTensor(f, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			codes, scales := make([]int, len(whole.Codes)), make([]int, len(whole.Scales)+len(whole.Scales32))
			for from := 0; from < rows; from += tiling.TileRows {
				for col := 0; col < cols; col += tiling.TileCols {
					tile := Tile{0, from, min(from+tiling.TileRows, rows), col, min(col+tiling.TileCols, cols)}
					part, err := quant.NewTensor(f, tile.To-tile.From, tile.ToCol-tile.FromCol)
					if err != nil {
						t.Fatal(err)
					}
					cover(t, codes, len(part.Codes), tile.Spans(f, Codes, cols))
					if tile.First() || !f.PerTensor() {
						cover(t, scales, len(part.Scales)+len(part.Scales32), tile.Spans(f, Scales, cols))
					}
				}
			}
			for name, counts := range map[string][]int{"codes": codes, "scales": scales} {
				if i := slices.IndexFunc(counts, func(n int) bool { return n != 1 }); i >= 0 {
					t.Errorf("%s in tiles of %d×%d: %s %d is covered %d times", f, tiling.TileRows, tiling.TileCols, name, i, counts[i])
				}
			}
		}
	}
}

// cover counts the units of the tensor that the spans of a tile of n units cover.
func cover(t *testing.T, counts []int, n int, at iter.Seq[Span]) {
	t.Helper()
	next := 0
	for s := range at {
		if s.From != next {
			t.Fatalf("a span begins at %d of the tile, and the last one ended at %d", s.From, next)
		}
		for i := range s.To - s.From {
			counts[int(s.At)+i]++
		}
		next = s.To
	}
	if next != n {
		t.Fatalf("spans cover %d of the %d units of a tile", next, n)
	}
}

// TestNarrowTiles: a matrix of one column has tiles, one without columns none.
func TestNarrowTiles(t *testing.T) {
	for cols, want := range map[int]int{0: 0, 1: 2} {
		n := 0
		for range (Tiling{3, cols, 2, 1}).Tiles(0) {
			n++
		}
		if n != want {
			t.Errorf("%d tiles of %d columns, want %d", n, cols, want)
		}
	}
}
