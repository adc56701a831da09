package verify

import (
	"math"
	"reflect"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestBlocksOf compares the figures of a tile with those counted by hand.
func TestBlocksOf(t *testing.T) {
	x := tensor.New(3, 70) // 3 blocks of a row, the last of 6 elements
	for i := range x.Rows {
		for j := range x.Cols {
			x.Row(i)[j] = 1
		}
	}
	clear(x.Row(1)[:32])               // a block of zeros: no SQNR
	x.Row(1)[64] = 0.9                 // the worst: 0.1²/(0.9²+5)
	x.Row(2)[33] = 0.95                // less, in a larger block
	x.Row(2)[0] = float32(math.Inf(1)) // not compared with the bound
	for j := range 32 {                // a block that is flushed
		x.Row(0)[j] = 0x1p-140
	}
	q, err := quant.Quantizer{Format: quant.MXFP4}.Rowwise(x, quant.With{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	tile := checkpoint.Tile{From: 10, To: 13, FromCol: 64, ToCol: 134}
	got := blocksOf(tile, quant.MXFP4, 1, x, q)
	got.finish()
	// The flushed block is the worst of all: 0 dB.
	if got.Count != 9 || got.ZeroScales != 2 || got.Lost != 1 || got.Worst != 0 || got.Row != 10 || got.Col != 64 || got.Width != 32 ||
		got.Unchecked != 32 || got.Beyond != 0 || got.BadScales != 0 {
		t.Errorf("%+v", got)
	}

	clear(x.Row(0)[:32])
	q.Scales[2*3+1] = 124                         // 2^-3: 0.5, and ones are beyond its 0.75
	q.Scales[1*3+1], q.Codes[1*48+16] = 129, 0x21 // 2^2: 0.5 and 1, which are 2 and 4
	got = blocksOf(tile, quant.MXFP4, 1, x, q)
	got.finish()
	if got.Count != 9 || got.ZeroScales != 2 || got.Lost != 0 || got.Row != 11 || got.Col != 96 || got.Width != 32 || got.Unchecked != 32 {
		t.Errorf("%+v", got)
	}
	if got.Beyond != 31+32 || got.beyond.row != 11 || got.beyond.col != 97 || got.beyond.want != 1 || got.beyond.got != 4 {
		t.Errorf("%d elements beyond, the first %+v", got.Beyond, got.beyond)
	}
	if got.BadScales != 1 || got.bad != (deviation{11, 96, 1, 4}) {
		t.Errorf("%d bad scales, the first %+v", got.BadScales, got.bad)
	}
}

// TestBlocksOfTensor: a single scale of a tensor is counted with its first tile. Without column
// blocks, errors are measured over blocks of BlockLength elements.
func TestBlocksOfTensor(t *testing.T) {
	x := tensor.New(2, 80)
	for i := range x.Data {
		x.Data[i] = float32(i%5) / 4
	}
	for _, f := range []quant.Format{quant.FP8Tensor, quant.FP8Row} {
		q, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		clear(q.Scales32)
		for from, want := range map[int]int64{0: 1, 2: 0} {
			if f.Name == quant.FP8Row.Name {
				want = 2
			}
			got := blocksOf(checkpoint.Tile{From: from, To: from + 2, ToCol: 80}, f, 1, x, q)
			if got.Count != 6 || got.ZeroScales != want || got.Lost != 6 || got.Width != 32 || got.amax != 1 {
				t.Errorf("%s from row %d: %+v", f, from, got)
			}
			if bad := got.BadScales; f.PerTensor() && bad != 0 || !f.PerTensor() && bad != 2 {
				t.Errorf("%s: %d bad scales", f, bad)
			}
		}
	}
}

// TestBlocksMerge: merging adds counts and reports. Of equally bad blocks, the first is the
// worst.
func TestBlocksMerge(t *testing.T) {
	worst := func(loss float64, row int) Blocks {
		return Blocks{Count: 2, ZeroScales: 3, Lost: 5, Unchecked: 7, Row: row, Col: row + 1, Width: row + 2, loss: loss}
	}
	total := Blocks{Row: 99, Col: 99}
	total.merge(Blocks{Count: 1, Row: 50, loss: math.NaN()}) // zeros: no width
	if total.Row != 99 || total.Width != 0 {
		t.Errorf("a block of zeros is the worst: %+v", total)
	}
	total.merge(worst(0, 1)) // an exact block counts too
	if total.Width != 3 || total.Row != 1 {
		t.Errorf("an exact block: %+v", total)
	}
	total.merge(worst(0.5, 2))
	total.merge(worst(0.5, 3))
	total.merge(worst(0.25, 4))
	if want := (Blocks{Count: 9, ZeroScales: 12, Lost: 20, Unchecked: 28, Row: 2, Col: 3, Width: 4, loss: 0.5}); !reflect.DeepEqual(total,
		want) {
		t.Errorf("%+v, want %+v", total, want)
	}
	first, second := deviation{1, 2, 3, 4}, deviation{5, 6, 7, 8}
	total = Blocks{}
	total.merge(Blocks{amax: 2, scale: 3})
	total.merge(Blocks{Beyond: 2, beyond: first, BadScales: 3, bad: second, amax: 1, scale: 1, nonFinite: true})
	total.merge(Blocks{Beyond: 4, beyond: second, BadScales: 5, bad: first, amax: 4, scale: 3})
	if want := (Blocks{Beyond: 6, beyond: first, BadScales: 8, bad: second, amax: 4, scale: 3, nonFinite: true}); !reflect.DeepEqual(total,
		want) {
		t.Errorf("%+v, want %+v", total, want)
	}
	total.finish()
	if !math.IsNaN(total.Worst) {
		t.Errorf("the worst of no blocks is %g dB", total.Worst)
	}
}
