package convert

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/verify"
)

// flip changes one bit of a file, at a distance in bytes from its end, and preserves the
// modification time.
func flip(path string, before int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], info.Size()-before)
	b[0] ^= 1
	_, writing := f.WriteAt(b[:], info.Size()-before)
	return errors.Join(err, writing, f.Close(), os.Chtimes(path, time.Time{}, info.ModTime()))
}

// TestResumeChanged: resuming a finished run detects one changed bit anywhere in the source,
// the result or an auxiliary file.
func TestResumeChanged(t *testing.T) {
	slow.Race(t, slow.Repeats)
	gguf := func(t *testing.T, _ string) *Plan {
		plan, err := PlanQuantize(t.Context(), openSample(t).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
			Convention: "gguf"})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	quantized := filepath.Join(t.TempDir(), "quantized")
	if _, err := planFor(t, writeModel(t, tiledModel(), madeConfig), "mxfp8").Run(context.Background(), quantized, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	format := func(name string) func(t *testing.T, src string) *Plan {
		return func(t *testing.T, src string) *Plan { return planFor(t, src, name) }
	}
	relabel := func(t *testing.T, src string) *Plan {
		plan, err := planRelabel(openModel(t, src), relabeling{Convention: "modelopt"})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	const middle = 300_000
	for _, tc := range []struct {
		name    string
		plan    func(t *testing.T, src string) *Plan
		shard   string // of the source that changes
		source  int64  // bytes before its end
		copied  bool   // the copied file of the source changes
		result  string // the file of the result that changes
		before  int64
		suffix  string
		from    string // a finished checkpoint to convert; "": one that is not quantized
		message string
	}{
		{name: "nothing", plan: format("nvfp4")},
		{name: "nothing in GGUF", plan: gguf, suffix: ".gguf"},
		{name: "nothing in a file", plan: format("nvfp4"), suffix: ".safetensors"},
		{name: "nothing decoded", plan: format(""), from: quantized},
		{name: "nothing relabeled", plan: relabel, from: quantized},
		{name: "source of quantized values", plan: format("nvfp4"), shard: shard2, source: 900_000, message: "of the source changed"},
		{name: "source of copied values", plan: format("nvfp4"), shard: shard1, source: 800_000, message: "differs between source and result"},
		{name: "source of relabeled values", plan: relabel, shard: shard1, source: middle, from: quantized,
			message: "differs between source and result"},
		{name: "source of decoded values", plan: format(""), shard: shard2, source: middle, from: quantized, message: "of the source changed"},
		{name: "copied file", plan: format("nvfp4"), copied: true, message: "tokenizer.json differs from the source"},
		{name: "result", plan: format("nvfp4"), result: shard2, before: 100_000, message: "is damaged: tensor"},
		{name: "end of the result", plan: format("nvfp4"), result: shard1, before: 1, message: "is damaged: tensor"},
		{name: "copied file of the result", plan: format("nvfp4"), result: "tokenizer.json", before: 1,
			message: "tokenizer.json differs from the source"},
		{name: "GGUF", plan: gguf, suffix: ".gguf", result: ".", before: 1_000_000, message: "is damaged: tensor"},
		{name: "single file", plan: format("nvfp4"), suffix: ".safetensors", result: ".", before: 1000, message: "is damaged: tensor"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := writeModel(t, tiledModel(), madeConfig)
			if tc.from != "" {
				src = filepath.Join(t.TempDir(), "src")
				if err := os.CopyFS(src, os.DirFS(tc.from)); err != nil {
					t.Fatal(err)
				}
			}
			writeText(t, filepath.Join(src, "tokenizer.json"), "{}")
			from := src
			if tc.suffix == ".safetensors" {
				from = filepath.Join(src, shard1)
			}
			dst := filepath.Join(t.TempDir(), "dst"+tc.suffix)
			if _, err := tc.plan(t, from).Run(context.Background(), dst, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			if tc.shard != "" {
				if err := flip(filepath.Join(src, tc.shard), tc.source); err != nil {
					t.Fatal(err)
				}
			}
			if tc.copied {
				writeText(t, filepath.Join(src, "tokenizer.json"), "[]")
			}
			if tc.result != "" {
				if err := flip(filepath.Join(dst, strings.TrimPrefix(tc.result, ".")), tc.before); err != nil {
					t.Fatal(err)
				}
			}
			for _, threads := range []int{1, 3} {
				result, err := tc.plan(t, from).Run(context.Background(), dst, RunOptions{Resume: true, Threads: threads})
				if tc.message == "" && (err != nil || !result.Finished) {
					t.Errorf("%d threads: %v", threads, err)
				}
				if tc.message != "" && (err == nil || !strings.Contains(err.Error(), tc.message) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%d threads: error %v, want %q", threads, err, tc.message)
				}
			}
			if tc.message == "" {
				return
			}
			if _, err := tc.plan(t, from).Run(context.Background(), dst, RunOptions{Resume: true, Force: true}); err != nil {
				t.Fatal(err)
			}
			if result, err := tc.plan(t, from).Run(context.Background(), dst, RunOptions{Resume: true}); err != nil || !result.Finished {
				t.Errorf("after --force: %v", err)
			}
		})
	}
}

// TestRecordThreads: the recorded checksums are those of the tensors, for every number of threads and
// for resumed runs.
func TestRecordThreads(t *testing.T) {
	src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
	whole := filepath.Join(dir, "whole")
	if _, err := planFor(t, src, "fp8-block128").Run(context.Background(), whole, RunOptions{Threads: 1}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{shard1, shard2} {
		f, err := safetensors.Open(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		record, ok, err := checksum.RecordOf(f)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		for i, info := range f.Tensors() {
			data := make([]byte, info.Bytes())
			if err := f.ReadTensorAt(data, info, 0); err != nil {
				t.Fatal(err)
			}
			if got, want := record.Tensors[i], checksum.Of(data); got != want {
				t.Errorf("%s: %x, want %x", info.Name, got, want)
			}
		}
	}
	for n := range 12 {
		dst := filepath.Join(dir, "dst")
		interrupted(t, planFor(t, src, "fp8-block128"), dst, n)
		if _, err := planFor(t, src, "fp8-block128").Run(context.Background(), dst, RunOptions{Resume: true, Threads: 1 + n%4}); err != nil {
			t.Fatal(err)
		}
		sameResult(t, dst, whole)
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMade: the comparison of a finished result with the source reports all bytes of the source.
func TestMade(t *testing.T) {
	src, dst := writeModel(t, tiledModel(), madeConfig), filepath.Join(t.TempDir(), "dst")
	plan := planFor(t, src, "mxfp4")
	if _, err := plan.Run(t.Context(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	var last verify.Progress
	o := RunOptions{Progress: func(p verify.Progress) { last = p }}
	err := planFor(t, src, "mxfp4").Made(t.Context(), openModel(t, dst).Source, o)
	if err != nil || last.Done != last.Total || last.Done == 0 {
		t.Errorf("%v, %+v", err, last)
	}
	if err := planFor(t, src, "mxfp8").Made(t.Context(), openModel(t, dst).Source, o); !errors.Is(err, ErrChanged) {
		t.Errorf("of another format: %v", err)
	}
}

// TestMergeDamaged: Merge detects one changed bit in a file of a worker.
func TestMergeDamaged(t *testing.T) {
	src := writeModel(t, workersModel(3), madeConfig)
	writeText(t, filepath.Join(src, "tokenizer.json"), "{}")
	for _, name := range []string{"part-2-of-3/model-00003-of-00003.safetensors", "part-0-of-3/tokenizer.json", "part-0-of-3/config.json"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "dst")
			for i := range 3 {
				work(t, src, "nvfp4", dst, i, 3)
			}
			if err := flip(dst+".microscale-"+name, 2); err != nil {
				t.Fatal(err)
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(),
				filepath.Base(name)) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMergeInterrupted: a merge that is interrupted while it verifies checksums leaves the
// parts for the next merge.
func TestMergeInterrupted(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	for i := range 3 {
		work(t, src, "nvfp4", dst, i, 3)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Merge(ctx, dst, RunOptions{}); err != context.Canceled { // and no part is called damaged
		t.Errorf("interrupted: %v", err)
	}
	if _, err := Merge(context.Background(), dst, RunOptions{}); err != nil {
		t.Error(err)
	}
}

// TestRecordWide: checksums of tiles that are narrower than their matrix.
func TestRecordWide(t *testing.T) {
	const rows, cols = 5, 12
	s, data := batch{d: decision{Weight: &checkpoint.Weight{Shape: []int64{rows, cols}}}}, make([]byte, rows*cols*4)
	for i := range data {
		data[i] = byte(i * 7)
	}
	s.read = *checksum.New(int64(len(data)))
	for _, tile := range []checkpoint.Tile{{From: 0, To: 3, FromCol: 0, ToCol: 8}, {From: 0, To: 3, FromCol: 8, ToCol: 12},
		{From: 3, To: 5, FromCol: 0, ToCol: 8}, {From: 3, To: 5, FromCol: 8, ToCol: 12}} {
		var part bytes.Buffer
		for row := tile.From; row < tile.To; row++ {
			part.Write(data[(row*cols+tile.FromCol)*4 : (row*cols+tile.ToCol)*4])
		}
		s.addRead(tile, part.Bytes())
	}
	if got, want := s.read.Value(), checksum.Of(data); got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestRecordExperts: the record of BF16 experts that are decoded on reading, because they are
// transposed or interleaved in their file, does not depend on the number of threads.
func TestRecordExperts(t *testing.T) {
	const experts, hidden, inter = 4, 512, 512
	const parent = "model.layers.0.mlp.experts."
	src := writeModel(t, map[string][]made{"model.safetensors": {
		{parent + "gate_up_proj", safetensors.BF16, 0.1, []int64{experts, hidden, 2 * inter}},
		{parent + "gate_up_proj_bias", safetensors.BF16, 0.1, []int64{experts, 2 * inter}},
		{parent + "down_proj", safetensors.BF16, 0.1, []int64{experts, inter, hidden}},
		{parent + "down_proj_bias", safetensors.BF16, 0.1, []int64{experts, hidden}},
	}}, `{"model_type": "gpt_oss", "hidden_size": 512, "num_hidden_layers": 1, "torch_dtype": "bfloat16"}`)
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := planFor(t, src, "mxfp4").Run(context.Background(), dst, RunOptions{Threads: 1}); err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{2, 32} {
		if result, err := planFor(t, src, "mxfp4").Run(context.Background(), dst, RunOptions{Resume: true, Threads: threads}); err != nil ||
			!result.Finished {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
