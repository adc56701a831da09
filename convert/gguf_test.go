package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/hf/sample"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// theSample is the sample that the tests share, since it takes longer to make than to convert; nil
// before a test opens it. TestMain closes it.
var theSample *hf.Checkpoint

func openSample(t *testing.T) *checkpoint.Model {
	t.Helper()
	if theSample == nil {
		var err error
		if theSample, err = sample.Open(context.Background(), sample.Name); err != nil {
			t.Fatal(err)
		}
	}
	return checkpoint.Read(theSample)
}

func openGGUF(t testing.TB, path string) *checkpoint.Model {
	t.Helper()
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checkpoint.Read(c)
}

// toGGUF quantizes the sample and returns the file.
func toGGUF(t *testing.T, src *checkpoint.Model, f quant.Format) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	q, err := profile.For(f).Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	quantize(t, src, path, QuantizeOptions{Quantizer: q, Convention: "gguf"}, RunOptions{})
	return path
}

// TestGGUF: a file has the same values as the same quantizer in compressed-tensors, and
// converting there and back changes no byte.
func TestGGUF(t *testing.T) {
	src := openSample(t)
	formats := []quant.Format{quant.NVFP4, quant.MXFP4}
	if testing.Short() {
		formats = formats[:1]
	}
	for _, f := range formats {
		t.Run("format="+f.Name, func(t *testing.T) {
			path := toGGUF(t, src, f)
			got := openGGUF(t, path)
			if !got.Convention.Is(checkpoint.GGUF()) || len(got.Problems) > 0 || got.Quantized() != 42 {
				t.Errorf("read as %v with %d quantized: %v", got.Convention, got.Quantized(), got.Problems)
			}
			report, err := verify.Compare(context.Background(), src.Source, got.Source, verify.Options{})
			if err != nil || !report.OK() {
				t.Errorf("%v (%v)", report.Problems, err)
			}
			dir := filepath.Join(t.TempDir(), "ct")
			quantize(t, src, dir, QuantizeOptions{Quantizer: quant.Quantizer{Format: f}}, RunOptions{})
			ct := openModel(t, dir)
			sameCodes(t, ct, got)

			again := filepath.Join(t.TempDir(), "again.gguf")
			relabel(t, ct, again, relabeling{Convention: "gguf"})
			relabeled := openGGUF(t, again)
			sameCodes(t, ct, relabeled)
			back := filepath.Join(t.TempDir(), "back")
			relabel(t, relabeled, back, relabeling{Convention: "compressed-tensors", Scheme: f.Name + "A16"})
			home := openModel(t, back)
			sameCodes(t, ct, home)
			for _, w := range ct.Weights {
				if want, ok := w.Part(checkpoint.Global); ok {
					h, _ := home.Lookup(w.Name)
					part, _ := h.Part(checkpoint.Global)
					a, b := make([]byte, 4), make([]byte, 4)
					if want.Shard.File.ReadTensorAt(a, want.TensorInfo, 0) != nil || part.Shard.File.ReadTensorAt(b, part.TensorInfo, 0) != nil ||
						!bytes.Equal(a, b) {
						t.Errorf("%s: global scale %x comes back as %x", w.Name, a, b)
					}
				}
			}
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestGGUFTensors checks the tensors that llama.cpp requires in the file itself, without
// package checkpoint.
func TestGGUFTensors(t *testing.T) {
	slow.Race(t, slow.Repeats)
	src := openSample(t)
	for _, tc := range []struct {
		format   quant.Format
		ggml     gguf.Type
		fileType uint32
		tensors  int
	}{{quant.BF16, gguf.BF16, 32, 57}, {quant.MXFP4, gguf.MXFP4, 38, 57}, {quant.NVFP4, gguf.NVFP4, 39, 57 + 42},
		{quant.Q8_0, gguf.Q8_0, 7, 57}} {
		f, err := gguf.Open(toGGUF(t, src, tc.format))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if f.Value("general.file_type") != tc.fileType || f.Value("general.architecture") != "llama" || len(f.Tensors) != tc.tensors {
			t.Errorf("%s: type %v, %d tensors", tc.format, f.Value("general.file_type"), len(f.Tensors))
		}
		for name, want := range map[string]gguf.Type{"token_embd.weight": gguf.BF16, "output.weight": gguf.BF16, "output_norm.weight": gguf.F32,
			"blk.5.ffn_norm.weight": gguf.F32, "blk.0.attn_k.weight": tc.ggml, "blk.5.ffn_down.weight": tc.ggml} {
			if info, ok := f.Lookup(name); !ok || info.Type != want {
				t.Errorf("%s: %s is %v", tc.format, name, info)
			}
		}
	}
	// Rows of queries: 0, 32, 1, 33, … of each head of 64.
	f, err := gguf.Open(toGGUF(t, src, quant.BF16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	info, _ := f.Lookup("blk.3.attn_q.weight")
	w, _ := src.Lookup("model.layers.3.self_attn.q_proj.weight")
	for row, of := range map[int]int{0: 0, 1: 32, 2: 1, 63: 63, 64: 64, 65: 96, 383: 383, 382: 351} {
		want, err := w.ReadBytes(checkpoint.Tile{FromCol: of * 384, ToCol: (of + 1) * 384}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2*384)
		if err := f.ReadTensorAt(got, info, int64(row)*2*384); err != nil || !bytes.Equal(got, want) {
			t.Errorf("row %d is not row %d of the source (%v)", row, of, err)
		}
	}
}

// TestGGUFQ80: the blocks of Q8_0 are those of ggml's quantize_row_q8_0_ref.
func TestGGUFQ80(t *testing.T) {
	slow.Race(t, slow.Repeats)
	src := openSample(t)
	path := toGGUF(t, src, quant.Q8_0)
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for name, of := range map[string]string{"blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
		"blk.5.attn_v.weight": "model.layers.5.self_attn.v_proj.weight"} {
		w, _ := src.Lookup(of)
		rows, _ := w.Matrix()
		x, err := w.Read(0, rows)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := 0; i < len(x.Data); i += 32 {
			amax := float32(0)
			for _, v := range x.Data[i : i+32] {
				amax = max(amax, float32(math.Abs(float64(v))))
			}
			d, inverse := amax/127, float32(0)
			if d != 0 {
				inverse = 1 / d
			}
			want = binary.LittleEndian.AppendUint16(want, uint16(format.FP16.Encode(d)))
			for _, v := range x.Data[i : i+32] {
				want = append(want, byte(int8(math.Round(float64(float32(v*inverse))))))
			}
		}
		info, _ := f.Lookup(name)
		got := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(got, info, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has other blocks than ggml's (%v)", name, err)
		}
	}
	report, err := verify.Compare(context.Background(), src.Source, openGGUF(t, path).Source, verify.Options{})
	if err != nil || !report.OK() {
		t.Errorf("%v (%v)", report.Problems, err)
	}
}

// TestGGUFResume: a resumed run ends with the same bytes, and resuming a complete file does
// nothing.
func TestGGUFResume(t *testing.T) {
	src := openSample(t)
	want := readFile(t, toGGUF(t, src, quant.NVFP4))
	path := filepath.Join(t.TempDir(), "m.gguf")
	plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "gguf"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = plan.Run(ctx, path, RunOptions{Resume: true, Threads: 1, Progress: func(p verify.Progress) {
		if p.Done > 30<<20 { // the sweep, and half of the conversion
			cancel()
		}
	}})
	if err == nil {
		t.Fatal("the run was not canceled")
	}
	for i, finished := range []bool{false, true} {
		result, err := plan.Run(context.Background(), path, RunOptions{Resume: true})
		if err != nil || result.Finished != finished || i == 0 && !result.Resumed {
			t.Fatalf("%+v (%v)", result, err)
		}
		if !bytes.Equal(readFile(t, path), want) {
			t.Error("the file has other bytes")
		}
	}
}

// TestGGUFWorkers: merging the parts of several workers, one of which writes the file, yields
// the bytes of a single run. Merge detects a damaged part.
func TestGGUFWorkers(t *testing.T) {
	src := openSample(t)
	want := readFile(t, toGGUF(t, src, quant.NVFP4))
	path := filepath.Join(t.TempDir(), "m.gguf")
	for i := range 2 {
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}, Convention: "gguf"})
		if err == nil {
			plan, err = plan.Worker(i, 2)
		}
		if err == nil {
			_, err = plan.Run(context.Background(), path, RunOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(path+partSuffix+"*", singleName))
	if err != nil || len(parts) != 1 {
		t.Fatalf("parts %q (%v)", parts, err)
	}
	written := readFile(t, parts[0])
	if err := os.Truncate(parts[0], int64(len(written)-1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(context.Background(), path, RunOptions{}); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a part without its last byte: %v", err)
	}
	if err := os.WriteFile(parts[0], written, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(context.Background(), path, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readFile(t, path), want) {
		t.Error("the file has other bytes")
	}
}

func TestGGUFRejects(t *testing.T) {
	src := openSample(t)
	for want, o := range map[string]QuantizeOptions{
		"does not support mxfp8: use one of bf16, q2_k": {Quantizer: quant.Quantizer{Format: quant.MXFP8}},
		"leave the calibration out": {Quantizer: quant.Quantizer{Format: quant.NVFP4},
			Calibration: &Calibration{ConstantInputs: true}},
		"stores no scales of activations: leave": {Quantizer: quant.Quantizer{Format: quant.NVFP4},
			Calibration: &Calibration{ConstantCache: true}},
		`has no scheme "W4A16" for nvfp4: use one of NVFP4`: {Quantizer: quant.Quantizer{Format: quant.NVFP4}, Scheme: "W4A16"},
		"requantizes GGUF files only":                       {Quantizer: quant.Quantizer{Format: quant.NVFP4}, Requantize: true},
	} {
		o.Convention = "gguf"
		if _, err := PlanQuantize(t.Context(), src.Source, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("says %v, want %q in it", err, want)
		}
	}
	if why := checkpoint.GGUF().Rejects(quant.NVFP4, "x.weight", []int64{8, 96}); !strings.Contains(why, "multiple of 64") {
		t.Errorf("rows of 96 in NVFP4: %q", why)
	}
	made := openModel(t, writeModel(t, square(), madeConfig))
	if _, err := PlanQuantize(t.Context(), made.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
		Convention: "gguf"}); err == nil || !strings.Contains(err.Error(), `"Made" is not supported in GGUF`) {
		t.Errorf("says %v", err)
	}
}
