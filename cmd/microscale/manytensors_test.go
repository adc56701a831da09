package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
)

// TestManyTensors bounds the memory that an open checkpoint needs for each tensor, and for each that is
// faulty.
func TestManyTensors(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for dtype, maxBytes := range map[safetensors.Dtype]int64{safetensors.BF16: 700, safetensors.U8: 900} {
		t.Run(dtype.String(), func(t *testing.T) {
			const count = 50_000
			path := filepath.Join(t.TempDir(), "many.safetensors")
			specs := make([]safetensors.Spec, count)
			for i := range specs {
				specs[i] = safetensors.Spec{Name: fmt.Sprintf("model.layers.%d.mlp.experts.%d.up_proj.weight", i/256, i%256), Dtype: dtype,
					Shape: []int64{1, 1}}
			}
			layout, err := safetensors.NewLayout(specs, nil)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, append(layout.HeaderBytes(), make([]byte, count*dtype.Bits()/8)...))

			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			source, err := input.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			model := checkpoint.Read(source)
			doc := conversion.Inspect(path, model)
			runtime.GC()
			runtime.ReadMemStats(&after)
			got := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / count
			t.Logf("%d bytes for each of %d tensors, %d of them faulty", got, len(doc.Weights), len(model.Problems))
			if got > maxBytes || len(doc.Weights) != count {
				t.Errorf("want at most %d bytes, for each of %d", maxBytes, count)
			}
			runtime.KeepAlive(model)
		})
	}
}
