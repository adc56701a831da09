package convert

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// sameAsWhole compares a weight of a file with the whole weight quantized by q at once.
func sameAsWhole(t *testing.T, q quant.Quantizer, src, dst *checkpoint.Model, name string) {
	t.Helper()
	weight, _ := src.Lookup(name)
	rows, cols := weight.Matrix()
	x, err := weight.Read(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	want, err := q.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	weight, ok := dst.Lookup(name)
	if !ok || !weight.Quantized() {
		t.Fatalf("%s is not quantized", name)
	}
	got, err := weight.ReadCodes(checkpoint.Tile{To: rows, ToCol: cols})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Codes, want.Codes) {
		t.Errorf("%s: codes differ from those of the whole", name)
	}
	if !slices.Equal(got.ScaleBytes(), want.ScaleBytes()) {
		t.Errorf("%s: scales differ from those of the whole", name)
	}
}

// writeValues writes a file of one weight in F32.
func writeValues(t *testing.T, path, name string, x tensor.Dense) {
	t.Helper()
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: name, Dtype: safetensors.F32,
		Shape: []int64{int64(x.Rows), int64(x.Cols)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	offset, _ := layout.Offset(name)
	if err := tensor.ToBytes(data[offset:], x.Data, format.F32); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestNonFinite: a NaN or an Inf in any tile has the same effect as in the whole tensor, for
// every profile and kind of scale.
func TestNonFinite(t *testing.T) {
	slow.Race(t, slow.Repeats)
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	const rows, cols = 144, 1024 // two tiles
	for name, values := range map[string]map[int]float32{
		"nan":         {140*cols + 17: nan},
		"inf":         {5: inf},
		"nan and inf": {3: inf, 143*cols + 1023: nan},
	} {
		x := tensor.New(rows, cols)
		for i := range x.Data {
			x.Data[i] = float32(i%97-48) / 16
		}
		for i, v := range values {
			x.Data[i] = v
		}
		path := filepath.Join(t.TempDir(), "src.safetensors")
		writeValues(t, path, "x.weight", x)
		src := openModel(t, path)
		for _, p := range profile.All() {
			for _, f := range []quant.Format{quant.MXFP8, quant.NVFP4, quant.FP8Tensor, quant.FP8Row} {
				q, err := p.Quantizer(f)
				if err != nil {
					continue
				}
				t.Run("values="+name+"/profile="+p.Name+"/format="+f.Name, func(t *testing.T) {
					dst := filepath.Join(t.TempDir(), "dst.safetensors")
					quantize(t, src, dst, QuantizeOptions{Quantizer: q}, RunOptions{AllowNonFinite: true, Threads: 2})
					sameAsWhole(t, q, src, openModel(t, dst), "x.weight")
				})
			}
		}
	}
}

// TestWide: tiles of parts of rows yield the values of whole rows, rowwise and columnwise, for
// every block shape. Verify confirms it.
func TestWide(t *testing.T) {
	slow.Race(t, slow.Repeats)
	path := filepath.Join(t.TempDir(), "wide.safetensors")
	writeFile(t, path, nil, made{"x.weight", safetensors.BF16, 1, []int64{2, 1<<20 + 4000}})
	src := openModel(t, path)
	for _, f := range []quant.Format{quant.MXFP6E2M3, quant.NVFP4x16, quant.FP8Tensor, quant.FP8Row} {
		t.Run("format="+f.Name, func(t *testing.T) {
			dir := t.TempDir()
			dst, back := filepath.Join(dir, "dst.safetensors"), filepath.Join(dir, "back.safetensors")
			q := quant.Quantizer{Format: f}
			_, results := quantize(t, src, dst, QuantizeOptions{Quantizer: q}, RunOptions{})
			model := openModel(t, dst)
			sameAsWhole(t, q, src, model, "x.weight")
			report := compare(t, src, model)
			sameReport(t, report.Tensors, results)

			plan, err := PlanDequantize(t.Context(), model.Source, safetensors.F32)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			quantized, _ := model.Lookup("x.weight")
			decoded, _ := openModel(t, back).Lookup("x.weight")
			want, err := quantized.Read(0, 2)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoded.Read(0, 2)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Data, want.Data) {
				t.Error("decoded tiles differ from the whole")
			}
		})
	}
}

// TestLongCopies: unquantized tensors are copied byte by byte, those of one long row too.
func TestLongCopies(t *testing.T) {
	tensors := []made{
		{"x.weight", safetensors.BF16, 1, []int64{32, 64}},
		{"long", safetensors.BF16, 1, []int64{400_001}},
		{"tall", safetensors.F32, 1, []int64{3, 100_001, 1}},
		{"mask", safetensors.I64, 0, []int64{6, 100_001}},
	}
	path := filepath.Join(t.TempDir(), "long.safetensors")
	writeFile(t, path, nil, tensors...)
	scramble(t, path, "mask")
	src := openModel(t, path)
	dst := filepath.Join(t.TempDir(), "dst.safetensors")
	quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}}, RunOptions{Threads: 3})
	got := openModel(t, dst)
	for _, m := range tensors[1:] {
		if !slices.Equal(tensorBytes(t, got, m.name), tensorBytes(t, src, m.name)) {
			t.Errorf("%s is not copied", m.name)
		}
	}
	compare(t, src, got)
}

// scramble fills a tensor of a file with bytes that differ from their neighbors.
func scramble(t *testing.T, path, name string) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(f.Tensors(), func(info safetensors.TensorInfo) bool { return info.Name == name })
	info := f.Tensors()[i]
	begin := int64(len(data)) - f.Tensors()[len(f.Tensors())-1].End + info.Begin
	for k := range info.Bytes() {
		data[begin+k] = byte(k * 0x9e37)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestClientDecodes: the decoded value of an NVFP4 weight in compressed-tensors is
// code·(scale/E) in float32, where E is the number in the file. The error that the conversion
// reports is that of these values.
func TestClientDecodes(t *testing.T) {
	src := openModel(t, writeModel(t, madeModel(), madeConfig))
	c, err := checkpoint.LookupConvention("compressed-tensors")
	if err != nil {
		t.Fatal(err)
	}
	product := 0 // decode scales that a product with 1/E would have missed
	for _, p := range profile.All() {
		q, err := p.Quantizer(quant.NVFP4)
		if err != nil {
			continue
		}
		t.Run("profile="+p.Name, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "dst")
			_, results := quantize(t, src, dst, QuantizeOptions{Quantizer: q, Convention: c.Name}, RunOptions{})
			model := openModel(t, dst)
			sameReport(t, compare(t, src, model).Tensors, results)
			for _, w := range model.Weights {
				if !w.Quantized() {
					continue
				}
				rows, cols := w.Matrix()
				got, err := w.Read(0, rows)
				if err != nil {
					t.Fatal(err)
				}
				codes, scales := tensorBytes(t, model, w.Name+"_packed"), tensorBytes(t, model, w.Name+"_scale")
				divisor := math.Float32frombits(binary.LittleEndian.Uint32(tensorBytes(t, model, w.Name+"_global_scale")))
				if p.Name == "compressed-tensors" && math.Float32bits(divisor)&0xffff != 0 {
					t.Errorf("%s: the global scale %g is not the BF16 number that the library computes", w.Name, divisor)
				}
				for i, g := range got.Data {
					code := uint32(codes[i/2]) >> (4 * (i % 2)) & 15
					scale := format.E4M3.Decode(uint32(scales[i/cols*(cols/16)+i%cols/16]))
					if want := float32(format.E2M1.Decode(code) * float32(scale/divisor)); g != want {
						t.Fatalf("%s: element %d is %g, and a client has %g", w.Name, i, g, want)
					}
					if float32(scale*float32(1/divisor)) != float32(scale/divisor) {
						product++
					}
				}
			}
		})
	}
	if product == 0 {
		t.Error("no scale tells a quotient from a product")
	}
}

// tensorBytes returns the bytes of a tensor of the files.
func tensorBytes(t *testing.T, m *checkpoint.Model, name string) []byte {
	t.Helper()
	info, ok := m.Source.Lookup(name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	data := make([]byte, info.Bytes())
	if err := m.Source.ReadTensorAt(name, data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestActivationScales: input scales beside a quantized weight are sound, belong to it, and are
// omitted when it is decoded. Then config.json names the dtype of the decoded weights.
func TestActivationScales(t *testing.T) {
	slow.Race(t, slow.Repeats)
	src := openModel(t, writeModel(t, madeModel(), madeConfig))
	const module = "model.layers.0.self_attn.o_proj"
	for _, tc := range []struct {
		format quant.Format
		scale  string
	}{{quant.NVFP4, module + ".input_global_scale"}, {quant.FP8Tensor, module + ".input_scale"}, {quant.FP8Row, module + ".input_scale"}} {
		for dtype, torch := range map[safetensors.Dtype]string{safetensors.F32: "float32", safetensors.F16: "float16"} {
			t.Run("format="+tc.format.Name+"/dtype="+torch, func(t *testing.T) {
				dst, back := filepath.Join(t.TempDir(), "dst"), filepath.Join(t.TempDir(), "back")
				quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: tc.format}}, RunOptions{})
				addTensor(t, dst, shard1, made{tc.scale, safetensors.F32, 1, []int64{1}})
				model := openModel(t, dst)
				compare(t, src, model)
				w, _ := model.Lookup(module + ".weight")
				if part, ok := w.Part(checkpoint.Input); !ok || part.Name != tc.scale {
					t.Errorf("%s is no part of the weight", tc.scale)
				}
				plan, err := PlanDequantize(t.Context(), model.Source, dtype)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				decoded := openModel(t, back)
				if _, ok := decoded.Source.Lookup(tc.scale); ok {
					t.Errorf("%s is still there", tc.scale)
				}
				if got := decoded.Source.TorchDtype(); got != torch {
					t.Errorf("config.json says that the weights are %s", got)
				}
				compare(t, model, decoded)
			})
		}
	}
}

// addTensor adds a tensor to a file of a checkpoint and to its index.
func addTensor(t *testing.T, dir, shard string, added made) {
	t.Helper()
	c, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	contents := map[string][]byte{added.name: added.bytes(t)}
	specs := []safetensors.Spec{{Name: added.name, Dtype: added.dtype, Shape: added.shape}}
	index := safetensors.Index{WeightMap: map[string]string{added.name: shard}, TotalSize: int64(len(contents[added.name]))}
	for _, info := range c.Tensors() {
		index.WeightMap[info.Name] = info.Shard.Name
		index.TotalSize += info.Bytes()
		if info.Shard.Name != shard {
			continue
		}
		contents[info.Name] = make([]byte, info.Bytes())
		if err := c.ReadTensorAt(info.Name, contents[info.Name], 0); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, safetensors.Spec{Name: info.Name, Dtype: info.Dtype, Shape: info.Shape})
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.FileSize())
	copy(data, layout.HeaderBytes())
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		offset, _ := layout.Offset(name)
		copy(data[offset:], contents[name])
	}
	text, err := index.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, bytes := range map[string][]byte{shard: data, safetensors.IndexName: text} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReasons: reasons are in numerical order, not in that of their digits.
func TestReasons(t *testing.T) {
	p := &Plan{}
	for reason, n := range map[string]int{"norm": 9, "embedding": 10, "1-D": 10, "router": 100} {
		for range n {
			p.decisions = append(p.decisions, decision{reason: Reason{causeRole, reason}})
		}
	}
	if got, want := p.reasons(), "router (100), 1-D (10), embedding (10), norm (9)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
