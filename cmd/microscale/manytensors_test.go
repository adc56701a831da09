package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/safetensors"
)

// TestManyTensors bounds the memory that an open checkpoint needs for each tensor.
func TestManyTensors(t *testing.T) {
	const count, maxBytes = 50_000, 800 // bytes a tensor
	path := filepath.Join(t.TempDir(), "many.safetensors")
	specs := make([]safetensors.Spec, count)
	for i := range specs {
		specs[i] = safetensors.Spec{Name: fmt.Sprintf("model.layers.%d.mlp.experts.%d.up_proj.weight", i/256, i%256), Dtype: safetensors.U8, Shape: []int64{1, 1}}
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, append(layout.HeaderBytes(), make([]byte, count)...))

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
	if got := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / count; got > maxBytes || len(doc.Weights) != count {
		t.Errorf("%d bytes for each of %d tensors, want at most %d", got, len(doc.Weights), maxBytes)
	} else {
		t.Logf("%d bytes for each tensor", got)
	}
	runtime.KeepAlive(model)
}
