package convert

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestBatchesThreads: writing several tiles at a time, as runs with few threads do, yields the bytes and
// errors of writing them one by one, in every format.
func TestBatchesThreads(t *testing.T) {
	const bf16, f32 = safetensors.BF16, safetensors.F32
	src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
		{"model.layers.0.self_attn.q_proj.weight", bf16, 0.02, []int64{900, 512}}, // tiles of 256 rows
		{"model.layers.0.mlp.down_proj.weight", f32, 0.3, []int64{384, 1024}},
		{"model.embed_tokens.weight", bf16, 1, []int64{3000, 100}},
	}}, madeConfig))
	const one = 2 * writeTiles // threads, of which each has one tile
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		t.Run("format="+f.Name, func(t *testing.T) {
			whole, single := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "out")
			o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}}
			_, want := quantize(t, src, single, o, RunOptions{Threads: one})
			_, got := quantize(t, src, whole, o, RunOptions{Threads: 1})
			if !maps.EqualFunc(contents(t, whole), contents(t, single), bytes.Equal) {
				t.Error("several tiles at a time give other bytes than one")
			}
			sameReport(t, got, want)
		})
	}
	plan := planFor(t, src.Source.Path, "mxfp8")
	for _, tc := range []struct {
		threads int
		several bool
	}{{1, true}, {one, false}} {
		r := newRun(plan, RunOptions{Threads: tc.threads})
		for i := range plan.decisions {
			batch, tile := r.batches(i), r.tiling(i)
			if more := batch.TileRows > tile.TileRows || batch.TileCols > tile.TileCols; more != tc.several || batch.TileRows%tile.TileRows != 0 ||
				batch.TileCols%tile.TileCols != 0 {
				t.Errorf("%d threads, %s: batches %+v of tiles %+v", tc.threads, plan.decisions[i].Weight.Name, batch, tile)
			}
		}
	}
}

// TestRecordFails: after a record fails to reach the disk, no other is written. A later record
// would follow a line that may be truncated, and vouch for data that may be lost.
func TestRecordFails(t *testing.T) {
	plan := planFor(t, writeModel(t, tiledModel(), madeConfig), "mxfp8")
	var first sync.Once // tile, whose end waits for the first record
	o := RunOptions{Resume: true, Threads: 2 * writeTiles,
		Progress: func(verify.Progress) { first.Do(func() { time.Sleep(2 * journalOften) }) }}
	out, err := plan.newOutput(filepath.Join(t.TempDir(), "out"), o)
	if err != nil {
		t.Fatal(err)
	}
	defer out.suspend()
	r := newRun(plan, o)
	r.out = out
	begin, err := plan.beginning()
	if err == nil {
		err = r.restore(context.Background(), begin)
	}
	if err == nil {
		err = r.journal.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.write(t.Context()); err == nil || strings.Count(err.Error(), os.ErrClosed.Error()) != 1 {
		t.Errorf("error %v, want that of one record", err)
	}
}
