package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/safetensors/checksum"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// An entry is a tensor of a file in memory.
type entry struct {
	safetensors.Spec
	data []byte
}

// A directory is a checkpoint of one file in memory.
type directory struct {
	tensors  map[string]entry
	metadata map[string]string
	config   map[string]any
}

func readDirectory(t *testing.T, dir string) *directory {
	t.Helper()
	d := &directory{tensors: map[string]entry{}}
	f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, info := range f.Tensors() {
		e := entry{safetensors.Spec{Name: info.Name, Dtype: info.Dtype, Shape: info.Shape}, make([]byte, info.Bytes())}
		if err := f.ReadTensorAt(e.data, info, 0); err != nil {
			t.Fatal(err)
		}
		d.tensors[info.Name] = e
	}
	d.metadata = maps.Clone(f.Metadata())
	delete(d.metadata, checksum.RecordKey) // which would find every damage
	data, err := os.ReadFile(filepath.Join(dir, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d.config); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *directory) write(t *testing.T, dir string) {
	t.Helper()
	var specs []safetensors.Spec
	for _, e := range d.tensors {
		specs = append(specs, e.Spec)
	}
	layout, err := safetensors.NewLayout(specs, d.metadata)
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, layout.FileSize())
	copy(file, layout.HeaderBytes())
	for name, e := range d.tensors {
		offset, _ := layout.Offset(name)
		copy(file[offset:], e.data)
	}
	files := map[string][]byte{"model.safetensors": file}
	if err := os.RemoveAll(filepath.Join(dir, hf.ConfigName)); err != nil {
		t.Fatal(err)
	}
	if d.config != nil {
		if files[hf.ConfigName], err = json.Marshal(d.config); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// quantization returns quantization_config.
func (d *directory) quantization() map[string]any {
	return d.config["quantization_config"].(map[string]any)
}

// set replaces a tensor.
func (d *directory) set(name string, dtype safetensors.Dtype, shape []int64, data []byte) {
	d.tensors[name] = entry{safetensors.Spec{Name: name, Dtype: dtype, Shape: shape}, data}
}

// values returns normally distributed BF16 numbers.
func values(t *testing.T, seed uint64, n int) []byte {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	data := make([]byte, 2*n)
	if err := tensor.ToBytes(data, x, format.BF16); err != nil {
		t.Fatal(err)
	}
	return data
}

// source writes a small checkpoint: two weights to quantize, one that is left unquantized, a
// norm, and integers.
func source(t *testing.T) string {
	t.Helper()
	d := &directory{
		tensors:  map[string]entry{},
		metadata: map[string]string{"format": "pt"},
		config:   map[string]any{"torch_dtype": "bfloat16"},
	}
	d.set("l.0.a.weight", safetensors.BF16, []int64{40, 128}, values(t, 1, 40*128))
	d.set("l.0.b.weight", safetensors.BF16, []int64{16, 128}, values(t, 2, 16*128))
	d.set("lm_head.weight", safetensors.BF16, []int64{8, 128}, values(t, 3, 8*128))
	d.set("norm.weight", safetensors.BF16, []int64{128}, values(t, 4, 128))
	d.set("ids", safetensors.I64, []int64{4}, make([]byte, 32))
	dir := t.TempDir()
	d.write(t, dir)
	return dir
}

func open(t *testing.T, path string) *checkpoint.Model {
	t.Helper()
	c, err := hf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checkpoint.Read(c)
}

func compare(t *testing.T, src, dst *checkpoint.Model, o verify.Options) *verify.Report {
	t.Helper()
	r, err := verify.Compare(context.Background(), src.Source, dst.Source, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// quantized converts src and returns the directory of the result.
func quantized(t *testing.T, src *checkpoint.Model, formatName, convention string) string {
	t.Helper()
	f, err := quant.Lookup(formatName)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), src.Source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f},
		Convention: convention})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestFigures compares the figures of Compare with those computed here from decoded values in
// float64.
func TestFigures(t *testing.T) {
	src := open(t, source(t))
	dst := open(t, quantized(t, src, "mxfp4", ct))
	for _, r := range compare(t, src, dst, verify.Options{}).Tensors {
		if r.Format != "mxfp4" {
			if !math.IsInf(r.Result.SQNR, 1) && r.Name != "ids" {
				t.Errorf("%s: a copy has an SQNR of %g dB", r.Name, r.Result.SQNR)
			}
			continue
		}
		want, _ := src.Lookup(r.Name)
		got, _ := dst.Lookup(r.Name)
		x, err := want.Read(0, r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		y, err := got.Read(0, r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		var signal, noise float64
		flushed := int64(0)
		for i := range x.Data {
			e := float64(y.Data[i]) - float64(x.Data[i])
			signal += float64(x.Data[i]) * float64(x.Data[i])
			noise += e * e
			if y.Data[i] == 0 && x.Data[i] != 0 {
				flushed++
			}
		}
		const rounded = 14.0 / (1 << 24) // at most 14 roundings to float32 in the two sums of a block
		if sqnr := 10 * math.Log10(signal/noise); math.Abs(r.Result.SQNR-sqnr) > 10*math.Log10(1+rounded) || r.Result.Flushed != flushed ||
			r.Result.Elements != int64(len(x.Data)) {
			t.Errorf("%s: %+v, want %g dB, %d flushed of %d", r.Name, r.Result, sqnr, flushed, len(x.Data))
		}
	}
}

// TestThreads: the number of threads changes no figure, and progress counts the bytes of the
// source once.
func TestThreads(t *testing.T) {
	src := open(t, source(t))
	dst := open(t, quantized(t, src, "nvfp4", ct))
	want := fmt.Sprintf("%+v", compare(t, src, dst, verify.Options{Threads: 1}))
	for _, threads := range []int{2, 5} {
		if got := fmt.Sprintf("%+v", compare(t, src, dst, verify.Options{Threads: threads})); got != want {
			t.Errorf("%d threads: %s, want %s", threads, got, want)
		}
	}
}

// TestProgress: Compare reports the bytes of the source, then those of dst for its checksums.
func TestProgress(t *testing.T) {
	src := open(t, source(t))
	dst := open(t, quantized(t, src, "nvfp4", ct))
	bytes := func(m *checkpoint.Model) (n int64) {
		for _, t := range m.Source.Tensors() {
			n += t.Bytes()
		}
		return n
	}
	var last verify.Progress
	done := map[string]int64{}
	compare(t, src, dst, verify.Options{Progress: func(p verify.Progress) {
		if p.Done < last.Done || p.Total != bytes(src)+bytes(dst) {
			t.Errorf("%+v after %+v, want a total of %d", p, last, bytes(src)+bytes(dst))
		}
		done[p.Stage] += p.Done - last.Done
		last = p
	}})
	if want := map[string]int64{"comparing": bytes(src), "comparing checksums": bytes(dst)}; !maps.Equal(done, want) {
		t.Errorf("bytes by stage %v, want %v", done, want)
	}
	last = verify.Progress{} // files without checksums, which are not read again
	compare(t, src, src, verify.Options{Progress: func(p verify.Progress) { last = p }})
	if want := 2 * bytes(src); last.Done != want || last.Total != want {
		t.Errorf("without checksums it ends with %+v, want %d bytes", last, want)
	}
}

// TestShortened: a file that is truncated during the comparison is an error.
func TestShortened(t *testing.T) {
	dir := source(t)
	src := open(t, dir)
	dst := quantized(t, src, "mxfp8", ct)
	model := open(t, dst)
	path := filepath.Join(dst, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(data)/2)); err != nil {
		t.Fatal(err)
	}
	if _, err := verify.Compare(context.Background(), src.Source, model.Source, verify.Options{}); err == nil || !strings.Contains(err.Error(),
		path) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte{0}, len(data)), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := verify.Compare(ctx, src.Source, model.Source, verify.Options{}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("error %v", err)
	}
}
