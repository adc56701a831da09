package verify_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

const (
	queries = "model.layers.0.self_attn.q_proj"
	keys    = "model.layers.0.self_attn.k_proj"
)

// siblings writes a checkpoint of q, k and v that share global scales, a weight of edge cases,
// an embedding and a norm, in the given dtype.
func siblings(t *testing.T, dtype safetensors.Dtype, scale float64) string {
	t.Helper()
	d := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"},
		config: map[string]any{"torch_dtype": "bfloat16"}}
	random := rand.New(rand.NewPCG(9, uint64(dtype)))
	add := func(name string, shape []int64, value func(i int) float64) {
		n := 1
		for _, extent := range shape {
			n *= int(extent)
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(value(i) * scale)
		}
		f, _ := dtype.Dense()
		data := make([]byte, n*f.Bits()/8)
		if err := tensor.ToBytes(data, x, f); err != nil {
			t.Fatal(err)
		}
		d.set(name, dtype, shape, data)
	}
	normal := func(int) float64 { return random.NormFloat64() }
	add(queries+".weight", []int64{256, 256}, normal)
	add(keys+".weight", []int64{256, 256}, func(int) float64 { return random.NormFloat64() / 4 })
	add("model.layers.0.self_attn.v_proj.weight", []int64{256, 256}, normal)
	add("model.layers.0.mlp.down_proj.weight", []int64{256, 384}, func(i int) float64 {
		v := random.NormFloat64()
		switch row := i / 384; row % 8 {
		case 1:
			v *= math.Exp2(-30 * random.Float64())
		case 2:
			v = math.Copysign(math.Exp2(float64(random.IntN(9)-8))*(1+float64(random.IntN(16))/16), v)
		case 3:
			v = 0
		case 4:
			if i%32 != 5 {
				v *= 1e-4
			}
		}
		return v
	})
	add("model.embed_tokens.weight", []int64{64, 256}, normal)
	add("model.norm.weight", []int64{256}, normal)
	dir := t.TempDir()
	d.write(t, dir)
	return dir
}

// quantizedBy quantizes a checkpoint with a quantizer and a scheme.
func quantizedBy(t *testing.T, src *checkpoint.Model, q quant.Quantizer, c *checkpoint.Convention, scheme string) string {
	t.Helper()
	o := convert.QuantizeOptions{Quantizer: q, Convention: c.Name, Scheme: scheme}
	if only, err := c.With(q.Format, scheme); err == nil {
		if _, activations := only.Scheme(q.Format); activations == checkpoint.Static {
			o.Calibration = &convert.Calibration{ConstantInputs: true}
		}
	}
	plan, err := convert.PlanQuantize(t.Context(), src.Source, o)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestFaithful: verify finds no problem in sound checkpoints of any format, profile, scale
// rule, search and convention. Sources with the ends of the ranges take every third of these without -full.
func TestFaithful(t *testing.T) {
	slow.Race(t, slow.Repeats)
	sources := map[string]*checkpoint.Model{"bf16": open(t, siblings(t, safetensors.BF16, 0.02))}
	if !testing.Short() {
		sources["f32, tiny"] = open(t, siblings(t, safetensors.F32, 0x1p-110))
		sources["f32, huge"] = open(t, siblings(t, safetensors.F32, 0x1p+120))
		sources["f16"] = open(t, siblings(t, safetensors.F16, 1))
	}
	plain := checkpoint.Plain()
	for name, src := range sources {
		cases := 0
		check := func(t *testing.T, q quant.Quantizer, c *checkpoint.Convention, scheme string) {
			t.Helper()
			if cases++; cases%3 > 0 && name != "bf16" && !*slow.FullRun {
				return
			}
			r := compare(t, src, open(t, quantizedBy(t, src, q, c, scheme)), verify.Options{})
			if !r.OK() {
				t.Errorf("by %+v in %s %s: %v", q, c, scheme, r.Problems)
			}
		}
		for _, f := range quant.Formats() {
			if !f.Scaled() {
				continue
			}
			t.Run(name+"/format="+f.Name, func(t *testing.T) {
				for _, p := range profile.All() {
					q, err := p.Quantizer(f)
					if err != nil {
						continue
					}
					check(t, q, plain, "")
					for _, s := range quant.Searches()[1:] {
						searched := q
						if searched.Search = s; s != quant.LeastSquares {
							searched.TopScale = quant.FourOverSixTop
						}
						if searched.Validate() == nil {
							check(t, searched, plain, "")
						}
					}
				}
				for _, rule := range quant.ScaleRules() {
					if f.Scale == format.E8M0 {
						check(t, quant.Quantizer{Format: f, Rule: rule}, plain, "")
					}
				}
				if f.Scale == format.F32 {
					check(t, quant.Quantizer{Format: f, PowerOfTwo: true}, plain, "")
				}
				for _, c := range checkpoint.Conventions() {
					if !c.Holds(f) || c.Rejects(f, queries+".weight", []int64{256, 256}) != "" || c.OneFile() {
						continue
					}
					for _, scheme := range c.Schemes(f) {
						check(t, quant.Quantizer{Format: f}, c, scheme)
					}
				}
			})
		}
	}
}

// part returns the tensor of the codes or scales of a weight.
func part(t *testing.T, dst *checkpoint.Model, module string, p checkpoint.Part) (name string) {
	t.Helper()
	w, ok := dst.Lookup(module + ".weight")
	if !ok {
		t.Fatalf("no weight of %s", module)
	}
	info, ok := w.Part(p)
	if !ok {
		return ""
	}
	return info.Name
}

// times multiplies a scale by 2^k and returns its bytes.
func times(f quant.Format, scale []byte, k int) {
	switch f.Scale {
	case format.E8M0:
		scale[0] += byte(k)
	case format.E4M3:
		scale[0] += byte(k << format.E4M3.Mantissa)
	case format.BF16:
		x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(scale)) << 16)
		binary.LittleEndian.PutUint16(scale, uint16(math.Float32bits(float32(math.Ldexp(float64(x), k)))>>16))
	default:
		x := math.Float32frombits(binary.LittleEndian.Uint32(scale))
		binary.LittleEndian.PutUint32(scale, math.Float32bits(float32(math.Ldexp(float64(x), k))))
	}
}

// TestCorrupted damages the data of a checkpoint in every format but not its structure. Verify
// reports each damage in the right weight.
func TestCorrupted(t *testing.T) {
	slow.Race(t, slow.Repeats)
	src := open(t, siblings(t, safetensors.BF16, 0.02))
	codes := func(do func(f quant.Format, codes []byte)) func(*testing.T, quant.Format, *checkpoint.Model, *directory) {
		return func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			edit(part(t, dst, queries, checkpoint.Codes), func(e *entry) { do(f, e.data) })(d)
		}
	}
	scales := func(at float64, k int) func(*testing.T, quant.Format, *checkpoint.Model, *directory) {
		return func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			edit(part(t, dst, queries, checkpoint.Scales), func(e *entry) {
				size := f.Scale.StoredBits() / 8
				times(f, e.data[int(at*float64(len(e.data)/size))*size:], k)
			})(d)
		}
	}
	global := func(k int) func(*testing.T, quant.Format, *checkpoint.Model, *directory) {
		return func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			if name := part(t, dst, queries, checkpoint.Global); name != "" {
				edit(name, func(e *entry) { times(quant.FP8Tensor, e.data, k) })(d)
			} else {
				scales(0, k)(t, f, dst, d)
			}
		}
	}
	damages := map[string]func(*testing.T, quant.Format, *checkpoint.Model, *directory){
		"codes of zero": codes(func(_ quant.Format, b []byte) { clear(b) }),
		"reversed":      codes(func(_ quant.Format, b []byte) { slices.Reverse(b) }),
		"sign of one":   codes(func(_ quant.Format, b []byte) { b[len(b)/2] ^= 0x88 }),
		"largest codes": codes(func(_ quant.Format, b []byte) {
			for i := range b {
				b[i] = 0x77
			}
		}),
		"blocks in another order": codes(func(_ quant.Format, b []byte) {
			n := len(b) / 256 / 8
			for i := 0; i+2*n <= len(b); i += 2 * n {
				for j := range n {
					b[i+j], b[i+n+j] = b[i+n+j], b[i+j]
				}
			}
		}),
		"rows moved": codes(func(_ quant.Format, b []byte) {
			copy(b, slices.Concat(b[len(b)/256:], b[:len(b)/256]))
		}),
		"one tile": codes(func(_ quant.Format, b []byte) {
			for i := range 16 {
				b[len(b)/3+i] = byte(37 * i)
			}
		}),
		"first scale times 4":         scales(0, 2),
		"a scale times 4":             scales(0.6, 2),
		"a scale over 4":              scales(0.6, -2),
		"a scale times 2":             scales(0.3, 1),
		"scale of the tensor times 2": global(1),
		"scale of the tensor over 2":  global(-1),
		"zeros under a huge scale": func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			edit(part(t, dst, queries, checkpoint.Codes), func(e *entry) { clear(e.data) })(d)
			edit(part(t, dst, queries, checkpoint.Scales), func(e *entry) {
				for i := 0; i < len(e.data); i += f.Scale.StoredBits() / 8 {
					if f.Scale == format.E4M3 {
						e.data[i] = 0x70
					} else {
						times(f, e.data[i:], 40)
					}
				}
			})(d)
		},
		"largest codes under a tiny scale": func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			x, err := src.Weights[slices.IndexFunc(src.Weights, func(w *checkpoint.Weight) bool { return w.Name == queries+".weight" })].Read(0, 256)
			if err != nil {
				t.Fatal(err)
			}
			edit(part(t, dst, queries, checkpoint.Codes), func(e *entry) {
				all := make([]byte, len(x.Data))
				for i, v := range x.Data {
					all[i] = byte(f.Element.Encode(float32(math.Copysign(float64(f.Element.Max()), float64(v)))))
				}
				f.Element.Join(e.data, all)
			})(d)
			edit(part(t, dst, queries, checkpoint.Scales), func(e *entry) {
				for i := 0; i < len(e.data); i += f.Scale.StoredBits() / 8 {
					if f.Scale == format.E4M3 {
						e.data[i] = 1
					} else {
						times(f, e.data[i:], -40)
					}
				}
			})(d)
		},
		"exchanged with a sibling": func(t *testing.T, _ quant.Format, dst *checkpoint.Model, d *directory) {
			for _, p := range []checkpoint.Part{checkpoint.Codes, checkpoint.Scales} {
				a, b := part(t, dst, queries, p), part(t, dst, keys, p)
				x, y := d.tensors[a], d.tensors[b]
				x.data, y.data = y.data, x.data
				d.tensors[a], d.tensors[b] = x, y
			}
		},
		"transposed": func(t *testing.T, f quant.Format, dst *checkpoint.Model, d *directory) {
			edit(part(t, dst, queries, checkpoint.Codes), func(e *entry) {
				all := make([]byte, 256*256)
				f.Element.Split(all, e.data)
				for i := range 256 {
					for j := range i {
						all[i*256+j], all[j*256+i] = all[j*256+i], all[i*256+j]
					}
				}
				f.Element.Join(e.data, all)
			})(d)
		},
	}
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		good := quantizedBy(t, src, quant.Quantizer{Format: f}, checkpoint.Plain(), "")
		for name, damage := range damages {
			t.Run("format="+f.Name+"/"+name, func(t *testing.T) {
				d := readDirectory(t, good)
				damage(t, f, open(t, good), d)
				dir := t.TempDir()
				d.write(t, dir)
				r := compare(t, src, open(t, dir), verify.Options{})
				if !slices.ContainsFunc(r.Problems, func(p verify.Problem) bool { return p.Tensor == queries+".weight" }) {
					t.Errorf("problems: %v", r.Problems)
				}
				if slices.ContainsFunc(r.Problems, func(p verify.Problem) bool {
					return strings.Contains(p.Tensor, "v_proj") || strings.Contains(p.Tensor, "down_proj")
				}) {
					t.Errorf("problems of what is not damaged: %v", r.Problems)
				}
			})
		}
	}
}

// TestMinSQNR: the threshold applies to quantized weights only.
func TestMinSQNR(t *testing.T) {
	src := open(t, siblings(t, safetensors.BF16, 0.02))
	dst := open(t, quantized(t, src, "nvfp4", ct))
	if r := compare(t, src, dst, verify.Options{MinSQNR: 10}); !r.OK() {
		t.Error(r.Problems)
	}
	r := compare(t, src, dst, verify.Options{MinSQNR: 30})
	if len(r.Problems) != 4 || !strings.Contains(r.Problems[0].Text, "dB, below the minimum of 30 dB") {
		t.Errorf("problems: %v", r.Problems)
	}
}

// TestRounded: a dequantized checkpoint must have the values of the quantized one, rounded to
// its dtype.
func TestRounded(t *testing.T) {
	src := open(t, source(t))
	small := open(t, quantized(t, src, "nvfp4", ct))
	for _, dtype := range []safetensors.Dtype{safetensors.F32, safetensors.BF16, safetensors.F16} {
		plan, err := convert.PlanDequantize(t.Context(), small.Source, dtype)
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "dst")
		if _, err := plan.Run(context.Background(), dst, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		r := compare(t, small, open(t, dst), verify.Options{})
		if !r.OK() || r.Checked(verify.Rounded) != 2 || r.Checked(verify.Identical) != 3 || r.Checked(verify.Bounded) != 0 {
			t.Errorf("%s: %v, %+v", dtype, r.Problems, r.Tensors)
		}
		d := readDirectory(t, dst)
		edit("l.0.a.weight", func(e *entry) { e.data[len(e.data)/2] ^= 1 })(d)
		d.write(t, dst)
		want := fmt.Sprintf("l.0.a.weight: 1 of its %s elements are not the source's values rounded", strings.ToLower(dtype.String()))
		if r := compare(t, small, open(t, dst), verify.Options{}); len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].String(), want) {
			t.Errorf("%s: problems are %v, want %q", dtype, r.Problems, want)
		}
	}
}

// TestTiles: verify keeps the findings of each tile of a weight, and names the first.
func TestTiles(t *testing.T) {
	d := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"},
		config: map[string]any{"torch_dtype": "bfloat16"}}
	const rows, cols = 1600, 256 // of which a tile has 512 rows
	d.set("l.0.a.weight", safetensors.BF16, []int64{rows, cols}, values(t, 1, rows*cols))
	d.set("lm_head.weight", safetensors.BF16, []int64{rows, cols}, values(t, 2, rows*cols))
	dir := t.TempDir()
	d.write(t, dir)
	src := open(t, dir)
	dst := quantized(t, src, "mxfp8", ct)
	damaged := readDirectory(t, dst)
	edit("lm_head.weight", func(e *entry) {
		for _, row := range []int{10, 700, 1599} {
			e.data[2*(row*cols+7)] ^= 1
		}
	})(damaged)
	edit("l.0.a.weight", func(e *entry) {
		for _, row := range []int{20, 800} {
			clear(e.data[row*cols+32 : row*cols+64])
		}
	})(damaged)
	edit("l.0.a.weight_scale", func(e *entry) { e.data[30*cols/32+3] -= 20; e.data[900*cols/32] += 20 })(damaged)
	damaged.write(t, dst)
	r := compare(t, src, open(t, dst), verify.Options{})
	b := r.Blocks[0]
	if b.Lost != 2 || b.BadScales != 2 || b.Beyond < 64 {
		t.Errorf("%+v", b)
	}
	for i, want := range []string{"the first, at row 20, column 32, ", "2 of its scales are out of range of the values in their blocks; " +
		"the first, at row 30, column 96, ", "3 of its bf16 elements differ from the source; the first, at row 10, column 7, "} {
		if len(r.Problems) != 3 || !strings.Contains(r.Problems[i].Text, want) {
			t.Errorf("problems are %v, want %q", r.Problems, want)
		}
	}
}

// TestOtherDtype: an unquantized weight of another dtype is compared with the values of the
// source, rounded to that dtype.
func TestOtherDtype(t *testing.T) {
	d := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"}, config: map[string]any{}}
	floats := func(x ...float32) (data []byte) {
		for _, v := range x {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	d.set("a.weight", safetensors.BF16, []int64{2}, []byte{0x80, 0x3f, 0x80, 0xbf}) // 1 and -1
	d.set("b.weight", safetensors.F32, []int64{2}, floats(1+0x1p-8, -1-0x1p-9))     // a tie, and less than one
	src := t.TempDir()
	d.write(t, src)
	for want, change := range map[string][2]entry{
		"": {{data: floats(1, -1)}, {data: []byte{0x80, 0x3f, 0x80, 0xbf}}},
		"a.weight: 1 of its f32 elements are not the source's values rounded to f32; the first, at row 0, column 1, is -1.0000001, " +
			"want -1": {{data: floats(1, -1-0x1p-23)}, {data: []byte{0x80, 0x3f, 0x80, 0xbf}}},
		"b.weight: 1 of its bf16 elements are not the source's values rounded to bf16; the first, at row 0, column 0, is " +
			"1.0078125, want 1": {{data: floats(1, -1)}, {data: []byte{0x81, 0x3f, 0x80, 0xbf}}},
	} {
		d.set("a.weight", safetensors.F32, []int64{2}, change[0].data)
		d.set("b.weight", safetensors.BF16, []int64{2}, change[1].data)
		dst := t.TempDir()
		d.write(t, dst)
		r := compare(t, open(t, src), open(t, dst), verify.Options{})
		if r.Checked(verify.Rounded) != 2 || r.OK() != (want == "") || want != "" && r.Problems[0].String() != want {
			t.Errorf("problems are %v, want %q", r.Problems, want)
		}
	}
}
