package decoder

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestReadTiles reads weights in tiles of few rows and compares codes, scales and parameters with those
// of weights that are read whole.
func TestReadTiles(t *testing.T) {
	m, dir := trained(t, small), t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	load := func(t *testing.T, path string, bytes int, o LoadOptions) *Model {
		source, err := hf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		m, r, err := prepare(t.Context(), checkpoint.Read(source), o)
		if err != nil {
			t.Fatal(err)
		}
		r.pace = pace{loadPace.readers, bytes, bytes}
		if err := r.read(t.Context(), m, m.projections()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, f := range []quant.Format{quant.BF16, quant.MXFP4, quant.NVFP4, quant.FP8Row, quant.FP8Tensor, quant.FP8Block} {
		t.Run("format="+f.Name, func(t *testing.T) {
			path := dir
			if f.Scaled() {
				path = quantized(t, dir, f.Name, quant.Quantizer{Format: f}, checkpoint.Plain())
			}
			for _, o := range []LoadOptions{{Inference: true}, {Inference: true, Inputs: Inputs{Format: quant.BF16}}} {
				const many = 1 << 30
				whole, tiled := load(t, path, many, o), load(t, path, 300, o)
				for i, p := range whole.projections() {
					for j, part := range p.frozen.parts {
						want, got := part.tensor(), tiled.projections()[i].frozen.parts[j].tensor()
						if !bytes.Equal(got.Codes, want.Codes) || !bytes.Equal(got.Scales, want.Scales) || !slices.Equal(got.Scales32, want.Scales32) ||
							got.Global != want.Global {
							t.Errorf("%s: part %d differs", p.name, j)
						}
					}
				}
				for i, p := range whole.Params() {
					if !slices.Equal(p.Value.Data, tiled.Params()[i].Value.Data) {
						t.Errorf("%s differs", p.Name)
					}
				}
			}
		})
	}
}

// TestJoins checks which modules of a projection share a matrix: those of one format and global scale, if blocks end
// with the rows of the first.
func TestJoins(t *testing.T) {
	weight := func(f quant.Format, global float32, d safetensors.Dtype) *checkpoint.Weight {
		return &checkpoint.Weight{Format: f, Global: global, Dtype: d}
	}
	nvfp4, bf16 := weight(quant.NVFP4, 0.5, safetensors.U8), weight(quant.Format{}, 1, safetensors.BF16)
	for name, c := range map[string]struct {
		first, next *checkpoint.Weight
		rows        int
		inputs      quant.Format
		want        bool
	}{
		"same":         {nvfp4, weight(quant.NVFP4, 0.5, safetensors.U8), 48, quant.BF16, true},
		"global":       {nvfp4, weight(quant.NVFP4, 0.25, safetensors.U8), 48, quant.BF16, false},
		"format":       {nvfp4, weight(quant.MXFP4, 0.5, safetensors.U8), 48, quant.BF16, false},
		"other inputs": {nvfp4, nvfp4, 48, quant.Format{}, false},
		"unquantized":  {nvfp4, bf16, 48, quant.BF16, false},
		"dense":        {bf16, weight(quant.Format{}, 1, safetensors.BF16), 48, quant.BF16, true},
		"dtype":        {bf16, weight(quant.Format{}, 1, safetensors.F16), 48, quant.BF16, false},
		"half a block": {weight(quant.FP8Block, 1, safetensors.F8E4M3), weight(quant.FP8Block, 1, safetensors.F8E4M3), 64, quant.BF16, false},
		"tensor":       {weight(quant.FP8Tensor, 1, safetensors.F8E4M3), weight(quant.FP8Tensor, 1, safetensors.F8E4M3), 64, quant.BF16, false},
	} {
		r := reader{options: LoadOptions{Inputs: Inputs{Format: c.inputs}}}
		if got := r.joins(stackedPart{weights: []*checkpoint.Weight{c.first}, rows: c.rows}, c.next); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// TestLoadAllocations compares the memory that Load allocates with that of the weights: the modules of a
// projection are not copied into its matrix, and a stored embedding has no FP32 table.
func TestLoadAllocations(t *testing.T) {
	m, err := New(Config{VocabSize: 2048, HiddenSize: 512, IntermediateSize: 1024, NumHiddenLayers: 1, NumAttentionHeads: 8,
		NumKeyValueHeads: 8}, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	low := quantized(t, dir, "mxfp8", quant.Quantizer{Format: quant.MXFP8}, checkpoint.Plain())
	source, err := hf.Open(low)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan := m.Plan()
	layers, rest := plan.HeldBytes(source)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Read(t.Context(), source, LoadOptions{Inference: true, Inputs: Inputs{Format: quant.BF16}}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, held := float64(after.TotalAlloc-before.TotalAlloc), float64(layers+rest); got > 1.3*held {
		t.Errorf("Load allocates %.3g times the bytes of the weights", got/held)
	}
}

// TestEach checks that each returns the error of the smallest number, and starts no call after an error.
func TestEach(t *testing.T) {
	var failure = errors.New("failure")
	const readers = 4
	calls := make([]bool, 1000)
	err := each(len(calls), readers, func(i int) error {
		calls[i] = true
		if i == 5 {
			return failure
		}
		if i > 5 {
			return context.Canceled
		}
		return nil
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want the error of the smallest number", err)
	}
	called := 0
	for i, c := range calls {
		if c {
			called++
		} else if i <= 5 {
			t.Errorf("call %d is missing, before the error", i)
		}
	}
	if called > 5+readers {
		t.Errorf("got %d calls, want at most %d after the error", called, readers-1)
	}
}

// TestPace checks that a stream reads a matrix at once where no conversion needs memory.
func TestPace(t *testing.T) {
	const rows, cols = 8192, 2048
	for _, c := range []struct {
		weight  checkpoint.Weight
		element int // bytes
		pace    pace
		want    int // reads
	}{
		{checkpoint.Weight{Dtype: safetensors.BF16}, 2, loadPace, 8},
		{checkpoint.Weight{Dtype: safetensors.BF16}, 2, streamPace, 1},
		{checkpoint.Weight{Format: quant.FP8Row}, 1, streamPace, 1},
		{checkpoint.Weight{Dtype: safetensors.F16}, 4, loadPace, 16},
		{checkpoint.Weight{Dtype: safetensors.F16}, 4, streamPace, 16},
	} {
		r := reader{pace: c.pace}
		got := r.split(&c.weight, checkpoint.Tile{To: rows, ToCol: cols}, c.element*cols, 1, func(int, int) error { return nil })
		if len(got) != c.want {
			t.Errorf("%s, %v: got %d reads, want %d", c.weight.FormatName(), c.pace, len(got), c.want)
		}
	}
}
