package decoder

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/safetensors"
)

// TestReadLayers compares the bits of a model whose layers are read one at a time with those of a model
// in memory.
func TestReadLayers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	c := Config{VocabSize: 300, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 3, NumAttentionHeads: 4, NumKeyValueHeads: 2}
	trained, err := New(c, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := trained.Save(dir, safetensors.F32); err != nil {
		t.Fatal(err)
	}
	m, err := Load(t.Context(), dir, LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	streamed, layer, err := ReadLayers(t.Context(), source, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 299, 7, 7}
	want, err := m.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x, err := streamed.Embed(tokens)
		if err != nil {
			t.Fatal(err)
		}
		for i := range streamed.Layers() {
			l, err := layer(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			if want := 4 * (2*64*64 + 2*64*32 + 3*64*96); l.Bytes() < want || l.Bytes() > want+4*64*4 {
				t.Errorf("layer %d has %d bytes, want about %d", i, l.Bytes(), want)
			}
			if x, err = l.Forward(x, nn.Observer{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := streamed.Head(x, 0, 300)
		if err != nil || !slices.Equal(got.Data, want.Data) {
			t.Errorf("the logits differ (%v)", err)
		}
	}
	for _, l := range streamed.layers {
		for _, p := range l.all() {
			if p.frozen != nil || p.linear != nil {
				t.Errorf("%s stays in memory", p.name)
			}
		}
	}
	if a, b := streamed.Size(), m.Size(); a.Other != b.Other || !slices.Equal(a.Linear, b.Linear) {
		t.Errorf("sizes %v and %v", a, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := layer(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestRelease reads each layer into the memory of the one before, and compares the bits with those of a
// model in memory.
func TestRelease(t *testing.T) {
	m, dir := trained(t, small), t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	inMemory, err := Load(t.Context(), dir, LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 99, 7}
	want, err := inMemory.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	streamed, layer, err := ReadLayers(t.Context(), source, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := streamed.Embed(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for i := range streamed.Layers() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := layer(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); i > 0 && got > l.Bytes()/4 {
			t.Errorf("layer %d of %d bytes takes %d bytes of new memory", i, l.Bytes(), got)
		}
		if x, err = l.Forward(x, nn.Observer{}); err != nil {
			t.Fatal(err)
		}
		l.Release()
	}
	got, err := streamed.Head(x, 0, streamed.Config.VocabSize)
	if err != nil || !slices.Equal(got.Data, want.Data) {
		t.Errorf("the logits differ (%v)", err)
	}
	for _, limits := range [][2]int{{-128, 0}, {1, 2}, {128, 0}, {0, streamed.Config.VocabSize + 1}} {
		if _, err := streamed.Head(x, limits[0], limits[1]); err == nil {
			t.Errorf("tokens %v of the vocabulary: got no error", limits)
		}
	}
}
