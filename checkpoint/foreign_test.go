package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/safetensors"
)

// A rawTensor is a tensor of a file, as another tool wrote it.
type rawTensor struct {
	name  string
	dtype safetensors.Dtype
	shape []int64
	data  []byte // nil: zeros
}

// readRaw reads a checkpoint with a configuration, "" for none, and tensors.
func readRaw(t *testing.T, config string, metadata map[string]string, tensors ...rawTensor) *Model {
	t.Helper()
	dir := t.TempDir()
	if config != "" {
		if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var specs []safetensors.Spec
	for _, r := range tensors {
		specs = append(specs, safetensors.Spec{Name: r.name, Dtype: r.dtype, Shape: r.shape})
	}
	l, err := safetensors.NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(filepath.Join(dir, safetensors.ShardName(1, 1)), l)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range tensors {
		data := r.data
		if data == nil {
			data = make([]byte, product(specs[i].Shape)*int64(r.dtype.Bits())/8)
		}
		if err := w.WriteTensorAt(r.name, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return Read(source)
}

// pattern returns n bytes without the codes of NaN.
func pattern(n, step int) []byte {
	p := make([]byte, n)
	for i := range p {
		if p[i] = byte(i*step + i/7); p[i]&0x7f == 0x7f {
			p[i] ^= 1
		}
	}
	return p
}

// floats returns little-endian FP32 values.
func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// halves returns the upper halves of FP32 values, BF16.
func halves(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
	}
	return b
}

// checkValues compares the values of a weight with want, in rows of the weight's shape.
func checkValues(t *testing.T, m *Model, name string, want func(row, col int) float32) {
	t.Helper()
	w, ok := m.Lookup(name)
	if !ok || !w.hasCodes() {
		t.Fatalf("%s is not quantized; the problems are %v", name, m.Problems)
	}
	rows, cols := w.Matrix()
	whole, err := w.Read(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	for tile := range w.Tiling(w.Format).Tiles(0) {
		x, err := w.ReadTile(tile)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Rows {
			if !slices.Equal(x.Row(i), whole.Row(tile.From + i)[tile.FromCol:tile.ToCol]) {
				t.Fatalf("%s: row %d of a tile differs from the whole", name, i)
			}
		}
	}
	for i := range rows {
		for j := range cols {
			if got := whole.Row(i)[j]; got != want(i, j) {
				t.Fatalf("%s [%d, %d] is %g, want %g", name, i, j, got, want(i, j))
			}
		}
	}
}

const ctRow = `{"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, "strategy": "channel"}`

// ctConfiguration returns config.json of compressed-tensors with groups.
func ctConfiguration(members string, layout string, groups ...string) string {
	return `{"model_type": "llama4", "hidden_size": 32, "vocab_size": 96, "torch_dtype": "bfloat16"` + members +
		`, "quantization_config": {"quant_method": "compressed-tensors",
		"format": "` + layout + `", "ignore": ["lm_head"], "config_groups": {` + strings.Join(groups, ",") + `}}}`
}

// TestStackedFP8 reads the experts of a layer as Llama 4 was published in FP8: codes [experts, in, out] of a name without
// ".weight", and a scale [experts, 1, out].
func TestStackedFP8(t *testing.T) {
	const name, experts, in, out = "model.layers.0.feed_forward.experts.gate_up_proj", 2, 32, 48
	codes := pattern(experts*in*out, 37)
	scales := make([]float32, experts*out)
	for i := range scales {
		scales[i] = float32(1+i%5) / 64
	}
	m := readRaw(t, ctConfiguration("", "float-quantized", `"g": {"targets": ["Linear"], "weights": `+ctRow+`}`), nil,
		rawTensor{name, safetensors.F8E4M3, []int64{experts, in, out}, codes},
		rawTensor{name + "_scale", safetensors.BF16, []int64{experts, 1, out}, halves(scales...)})
	if len(m.Problems) > 0 {
		t.Errorf("problems: %v", m.Problems)
	}
	checkValues(t, m, name, func(row, col int) float32 {
		e, o := row/out, row%out
		return format.E4M3.Decode(uint32(codes[(e*in+col)*out+o])) * scales[row]
	})
	w, _ := m.Lookup(name)
	if spec := w.DenseSpec(safetensors.F32); !slices.Equal(spec.Shape, []int64{experts, in, out}) {
		t.Errorf("values have the shape %v, not that of the file", spec.Shape)
	}
}

// TestStackedFP8Rows reads the same with the codes of linear modules, [experts, out, in], and scales [experts, out, 1].
func TestStackedFP8Rows(t *testing.T) {
	const name, experts, in, out = "model.layers.0.mlp.experts.down_proj", 2, 32, 48
	codes := pattern(experts*in*out, 37)
	scales := make([]float32, experts*out)
	for i := range scales {
		scales[i] = float32(1+i%5) / 64
	}
	config := strings.Replace(ctConfiguration("", "float-quantized", `"g": {"targets": ["Linear"], "weights": `+ctRow+`}`), "llama4",
		"other", 1)
	m := readRaw(t, config, nil, rawTensor{name, safetensors.F8E4M3, []int64{experts, out, in}, codes},
		rawTensor{name + "_scale", safetensors.F32, []int64{experts, out, 1}, floats(scales...)})
	checkValues(t, m, name, func(row, col int) float32 {
		return format.E4M3.Decode(uint32(codes[row*in+col])) * scales[row]
	})
}

// TestGroups reads a checkpoint of several block formats: the tensors of each weight decide.
func TestGroups(t *testing.T) {
	const e8m0 = `{"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, "strategy": "group", "group_size": 32, ` +
		`"scale_dtype": "torch.uint8"}`
	const tensor = `{"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, "strategy": "tensor"}`
	config := ctConfiguration("", ctMixed, `"a": {"format": "float-quantized", "targets": ["re:.*q"], "weights": `+ctRow+`}`,
		`"b": {"format": "mxfp8-quantized", "targets": ["re:.*k"], "weights": `+e8m0+`}`,
		`"c": {"format": "float-quantized", "targets": ["re:.*v"], "weights": `+tensor+`}`)
	codes := pattern(4*32, 11)
	m := readRaw(t, config, nil,
		rawTensor{"q.weight", safetensors.F8E4M3, []int64{4, 32}, codes}, rawTensor{"q.weight_scale", safetensors.F32, []int64{4, 1},
			floats(1, 2, 3, 4)},
		rawTensor{"k.weight", safetensors.F8E4M3, []int64{4, 32}, codes}, rawTensor{"k.weight_scale", safetensors.U8, []int64{4, 1},
			[]byte{127, 128, 129, 130}},
		rawTensor{"v.weight", safetensors.F8E4M3, []int64{4, 32}, codes}, rawTensor{"v.weight_scale", safetensors.F32, []int64{1}, floats(3)})
	if len(m.Problems) > 0 || m.Scheme != ctMixed {
		t.Errorf("scheme %s, problems %v", m.Scheme, m.Problems)
	}
	code := func(row, col int) float32 { return format.E4M3.Decode(uint32(codes[row*32+col])) }
	checkValues(t, m, "q.weight", func(row, col int) float32 { return code(row, col) * float32(row+1) })
	checkValues(t, m, "k.weight", func(row, col int) float32 { return code(row, col) * float32(int(1)<<row) })
	checkValues(t, m, "v.weight", func(row, col int) float32 { return code(row, col) * 3 })
}

// TestPowerOfTwoScales reads FP32 scales that a file holds as F8_E8M0, as DeepSeek's later models do.
func TestPowerOfTwoScales(t *testing.T) {
	codes := pattern(130*128, 13)
	for _, scale := range []string{"l.weight_scale_inv", "l.scale"} {
		m := readRaw(t, `{"model_type": "deepseek_v3", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`, nil,
			rawTensor{"l.weight", safetensors.F8E4M3, []int64{130, 128}, codes}, rawTensor{scale, safetensors.F8E8M0, []int64{2, 1},
				[]byte{125, 128}})
		if len(m.Problems) > 0 {
			t.Errorf("problems: %v", m.Problems)
		}
		checkValues(t, m, "l.weight", func(row, col int) float32 {
			s := float32(0.25)
			if row >= 128 {
				s = 2
			}
			return format.E4M3.Decode(uint32(codes[row*128+col])) * s
		})
	}
}

// TestScalesMissing: the scales of codes have the name of the convention.
func TestScalesMissing(t *testing.T) {
	m := readRaw(t, `{"model_type": "deepseek_v3", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`, nil,
		rawTensor{"a.weight", safetensors.F8E4M3, []int64{128, 128}, nil})
	if text := fmt.Sprint(m.Problems); !strings.Contains(text, "a.weight: it holds F8_E4M3 codes, but its scales (a.weight_scale_inv) are "+
		"missing") {
		t.Errorf("got %s", text)
	}
}

// TestUnknownCodes: codes that nothing describes are a problem of every checkpoint, whatever their names.
func TestUnknownCodes(t *testing.T) {
	dense := rawTensor{"model.embed_tokens.weight", safetensors.BF16, []int64{96, 32}, nil}
	for _, tc := range []struct {
		want    string
		tensors []rawTensor
	}{
		{"holds F8_E4M3 codes, but its scales (experts.gate_up_proj_scale) are missing: its values are unknown: config.json has no " +
			"quantization_config", []rawTensor{{"experts.gate_up_proj", safetensors.F8E4M3, []int64{2, 32, 64}, nil}}},
		{"holds F4 codes, but its scales (x_scale) are missing", []rawTensor{{"x", safetensors.F4, []int64{2, 32}, nil}}},
		{"holds U8 codes, but nothing says", []rawTensor{{"x.weight", safetensors.U8, []int64{2, 32}, nil}}},
		{"holds U8 codes, but nothing says", []rawTensor{{"experts.w1", safetensors.U8, []int64{2, 32}, nil},
			{"experts.w1_scales", safetensors.U8, []int64{2, 1}, nil}}},
		{"holds I32 codes, but nothing says", []rawTensor{{"x.weight", safetensors.I32, []int64{2, 32}, nil}}},
		{"", []rawTensor{{"position_ids", safetensors.I64, []int64{1, 32}, nil}, {"attn.bias", safetensors.U8, []int64{1, 1, 8, 8}, nil}}},
	} {
		m := readRaw(t, `{"model_type": "llama"}`, nil, append(tc.tensors, dense)...)
		text := ""
		for _, p := range m.Problems {
			text += p.String() + "\n"
			if p.Harmless() {
				t.Errorf("%v is harmless", p)
			}
		}
		if !strings.Contains(text, tc.want) || tc.want == "" && text != "" {
			t.Errorf("%v: problems %q, want %q", tc.tensors[0].name, text, tc.want)
		}
	}
}

// TestSimulated: values beside scales are those of simulated quantization, of which a conversion drops the scales; the problem does
// not advise to fetch the file again.
func TestSimulated(t *testing.T) {
	m := readRaw(t, ctConfiguration("", "dense", `"g": {"targets": ["Linear"], "weights": `+ctRow+`}`), nil,
		rawTensor{"l.weight", safetensors.BF16, []int64{4, 32}, nil}, rawTensor{"l.weight_scale", safetensors.F32, []int64{4, 1}, nil})
	found := false
	for _, p := range m.Problems {
		found = found || p.Tensor == "l.weight" && strings.Contains(p.Text, "simulated quantization") && p.Mended
		if strings.HasPrefix(p.Tensor, "l.") && strings.Contains(p.Text, "fetch") {
			t.Errorf("%v", p)
		}
	}
	if !found {
		t.Errorf("problems: %v", m.Problems)
	}
}

// TestUnlisted: lists name linear modules. An embedding, a router and a table of positions that are on none are no problem;
// a linear module without scales is one of its clients alone.
func TestUnlisted(t *testing.T) {
	dense := func(name string, rows int64) rawTensor {
		return rawTensor{name, safetensors.BF16, []int64{rows, 32}, nil}
	}
	m := readRaw(t, ctConfiguration(`, "num_experts": 6, "max_position_embeddings": 40`, "float-quantized",
		`"g": {"targets": ["Linear"], "weights": `+ctRow+`}`), nil,
		rawTensor{"l.weight", safetensors.F8E4M3, []int64{4, 32}, nil}, rawTensor{"l.weight_scale", safetensors.F32, []int64{4, 1}, nil},
		dense("model.tokens.weight", 96), dense("model.mlp.choice.weight", 6), dense("positions.weight", 40), dense("lm_head.weight", 96),
		dense("model.wte.weight", 97))
	if len(m.Problems) > 0 {
		t.Errorf("problems: %v", m.Problems)
	}
	m = readRaw(t, ctConfiguration("", "float-quantized", `"g": {"targets": ["Linear"], "weights": `+ctRow+`}`), nil,
		rawTensor{"l.weight", safetensors.F8E4M3, []int64{4, 32}, nil}, rawTensor{"l.weight_scale", safetensors.F32, []int64{4, 1}, nil},
		dense("m.weight", 8))
	if len(m.Problems) != 1 || !m.Problems[0].Misread || !strings.Contains(m.Problems[0].String(),
		"m.weight: it is not quantized and not on the ignore list") {
		t.Errorf("problems: %v", m.Problems)
	}
	if !bytes.Contains([]byte(m.Problems[0].Text), []byte("client")) {
		t.Errorf("%v does not say whose problem it is", m.Problems[0])
	}
}

// TestForeignLayouts reads a weight of every layout that is read and never written.
func TestForeignLayouts(t *testing.T) {
	const rows, cols = 4, 32
	codes := pattern(rows*cols, 11)
	e4m3 := func(row, col int) float32 { return format.E4M3.Decode(uint32(codes[row*cols+col])) }
	e2m1 := func(row, col int) float32 {
		return format.E2M1.Decode(uint32(codes[(row*cols+col)/2] >> (4 * (col & 1)) & 15))
	}
	perRow := floats(1, 2, 3, 4)
	config := func(text string) string { return `{"model_type": "llama", "quantization_config": ` + text + `}` }
	f8 := rawTensor{"l.weight", safetensors.F8E4M3, []int64{rows, cols}, codes}
	f4 := func(name string) rawTensor {
		return rawTensor{name, safetensors.U8, []int64{rows, cols / 2}, codes[:rows*cols/2]}
	}
	e8m0 := rawTensor{"l.weight_scale", safetensors.U8, []int64{rows, 1}, []byte{127, 128, 129, 130}}
	blocks := rawTensor{"l.weight_scale", safetensors.F8E4M3, []int64{rows, 2}, bytes.Repeat([]byte{0x38, 0x40}, rows)} // 1, 2
	byRow := func(row, col int) float32 { return e4m3(row, col) * float32(row+1) }
	byTwo := func(row, col int) float32 { return e4m3(row, col) * 2 }
	for _, tc := range []struct {
		name, config string
		metadata     map[string]string
		want         func(row, col int) float32
		tensors      []rawTensor
	}{
		{"fbgemm", config(`{"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}`), nil, byRow,
			[]rawTensor{f8, {"l.weight_scale", safetensors.F32, []int64{rows, 1}, perRow}}},
		{"fp8 of a tensor", config(`{"quant_method": "fp8", "activation_scheme": "static"}`), nil, byTwo,
			[]rawTensor{f8, {"l.weight_scale_inv", safetensors.BF16, nil, halves(2)}, {"l.activation_scale", safetensors.BF16, nil, halves(2)}}},
		{"fp8 of rows", config(`{"quant_method": "fp8"}`), nil, byRow,
			[]rawTensor{f8, {"l.weight_scale", safetensors.F32, []int64{rows}, perRow}}},
		{"mistral", "", nil, byTwo, []rawTensor{f8, {"l.qscale_weight", safetensors.F32, nil, floats(2)},
			{"l.qscale_act", safetensors.F32, nil, floats(3)}}},
		{"scaled_fp8", "", nil, byTwo, []rawTensor{f8, {"l.scale_weight", safetensors.F32, []int64{1}, floats(2)},
			{"scaled_fp8", safetensors.F8E4M3, []int64{0}, nil}}},
		{"comfy_quant", "", nil, byTwo, []rawTensor{f8, {"l.weight_scale", safetensors.F32, nil, floats(2)},
			{"l.comfy_quant", safetensors.U8, []int64{27}, []byte(`{"format": "float8_e4m3fn"}`)}}},
		{"torchao FP8", config(`{"quant_method": "torchao"}`),
			map[string]string{"l.weight": `{"_type": "Float8Tensor", "_data": {"block_size": [1, 32]}}`}, byRow,
			[]rawTensor{{"l._weight_qdata", safetensors.F8E4M3, []int64{rows, cols}, codes}, {"l._weight_scale", safetensors.F32, []int64{rows, 1},
				perRow}}},
		{"torchao MXFP8", config(`{"quant_method": "torchao"}`),
			map[string]string{"l.weight": `{"_type": "MXTensor", "_data": {"is_swizzled_scales": false}}`},
			func(row, col int) float32 { return e4m3(row, col) * float32(int(1)<<row) },
			[]rawTensor{{"l._weight_qdata", safetensors.F8E4M3, []int64{rows, cols}, codes}, {"l._weight_scale", safetensors.F8E8M0,
				[]int64{rows, 1}, []byte{127, 128, 129, 130}}}},
		{"torchao NVFP4, no global scale", config(`{"quant_method": "torchao"}`),
			map[string]string{"l.weight": `{"_type": "NVFP4Tensor", "_data": {"is_swizzled_scales": false}}`},
			func(row, col int) float32 { return e2m1(row, col) * float32(1+col/16) },
			[]rawTensor{f4("l._weight_qdata"), {"l._weight_scale", safetensors.F8E4M3, []int64{rows, 2}, blocks.data}}},
		{"modelopt, one block", config(`{"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}`), nil, byTwo,
			[]rawTensor{f8, {"l.weight_scale", safetensors.F32, nil, floats(2)}}},
		{"auto-round", config(`{"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32, "packing_format": ` +
			`"auto_round:llm_compressor"}`), nil,
			func(row, col int) float32 { return e2m1(row, col) * float32(int(1)<<row) }, []rawTensor{f4("l.weight_packed"), e8m0}},
		{"quark", config(`{"quant_method": "quark", "export": {}, "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": ` +
			`"per_tensor", "group_size": null}}}`), nil, byTwo,
			[]rawTensor{f8, {"l.weight_scale", safetensors.F32, nil, floats(2)}}},
		{"quark, FP8 activations", config(`{"quant_method": "quark", "export": {}, "global_quant_config": {"weight": {"dtype": "fp4", ` +
			`"qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}}`), nil,
			func(row, col int) float32 { return e2m1(row, col) * float32(int(1)<<row) },
			[]rawTensor{f4("l.weight"), e8m0, {"l.input_scale", safetensors.F32, nil, floats(2)}}},
		{"quark's layers", config(
			`{"quant_method": "quark", "export": {}, "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
				"layer_quant_config": {"l": {"weight":
			[{"dtype": "fp4", "qscheme": "per_group", "group_size": 16}, {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}]}}}`), nil,
			func(row, col int) float32 { return e2m1(row, col) * float32(1+col/16) * 2 },
			[]rawTensor{f4("l.weight"), blocks, {"l.weight_scale_2", safetensors.F32, nil, floats(2)}}},
		{"modelopt, mixed", config(`{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"l": {"quant_algo": ` +
			`"NVFP4"}, "m": {"quant_algo": "FP8"}}}`), nil,
			func(row, col int) float32 { return e2m1(row, col) * float32(1+col/16) * 2 },
			[]rawTensor{f4("l.weight"), blocks, {"l.weight_scale_2", safetensors.F32, nil, floats(2)}, {"l.input_scale", safetensors.F32, nil,
				floats(2)}}},
		{"mlx's experts", `{"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "quantization_config": {"group_size": 32, ` +
			`"bits": 4, "mode": "mxfp4"}}`, nil,
			func(row, col int) float32 { return e2m1(row, col) * float32(int(1)<<row) },
			[]rawTensor{{"l.weight", safetensors.U32, []int64{2, 2, cols / 8}, codes[:rows*cols/2]}, {"l.scales", safetensors.U8, []int64{2, 2, 1},
				[]byte{127, 128, 129, 130}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := readRaw(t, tc.config, tc.metadata, tc.tensors...)
			if len(m.Problems) > 0 {
				t.Errorf("problems: %v", m.Problems)
			}
			checkValues(t, m, "l.weight", tc.want)
			for _, w := range m.Weights {
				if strings.HasPrefix(w.Name, "l.") && strings.HasSuffix(w.Name, "input_scale") {
					t.Errorf("%s is a weight, not the scale of activations", w.Name)
				}
			}
		})
	}
}

// TestSwizzledScales reads ComfyUI's NVFP4: the first of two codes in the high half of a byte, scales in tiles of 128×4 with padding.
func TestSwizzledScales(t *testing.T) {
	const rows, cols = 130, 96
	codes := pattern(rows*cols/2, 7)
	size := layout.Swizzled.Size(rows, cols/16)
	scales := make([]byte, size)
	for i := range rows {
		for j := range cols / 16 {
			scales[layout.Swizzled.Offset(i, j, rows, cols/16)] = byte(0x30 + (i+3*j)%16)
		}
	}
	m := readRaw(t, "", map[string]string{"_quantization_metadata": `{"format_version": "1.0", "layers": {"l": {"format": "nvfp4"}}}`},
		rawTensor{"l.weight", safetensors.U8, []int64{rows, cols / 2}, codes}, rawTensor{"l.weight_scale", safetensors.F8E4M3, []int64{256, 8},
			scales},
		rawTensor{"l.weight_scale_2", safetensors.F32, nil, floats(0.5)})
	if len(m.Problems) > 0 {
		t.Errorf("problems: %v", m.Problems)
	}
	checkValues(t, m, "l.weight", func(row, col int) float32 {
		code := codes[(row*cols+col)/2] >> (4 * (1 - col&1)) & 15
		return format.E2M1.Decode(uint32(code)) * format.E4M3.Decode(uint32(0x30+(row+3*(col/16))%16)) * 0.5
	})
	w, _ := m.Lookup("l.weight")
	tile, err := w.ReadTile(Tile{From: 129, To: 130, FromCol: 32, ToCol: 96})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := w.Read(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tile.Row(0), whole.Row(129)[32:]) {
		t.Error("a tile in the second row of tiles differs from the whole")
	}
}

func first(stored []Stored, _, _ string) []Stored { return stored }

// shaped returns a global scale with the dimensions of compressed-tensors, if codes are its.
func (r rawTensor) shaped(codes string) rawTensor {
	if strings.HasSuffix(codes, "_packed") {
		r.shape = []int64{1}
	}
	return r
}

// TestPartialBlocks reads FP8 blocks of 128×128 of which a row has one and a half, as llm-compressor and Model Optimizer write
// them: codes without padding.
func TestPartialBlocks(t *testing.T) {
	const rows, cols = 130, 192
	codes := pattern(rows*cols, 5)
	scales := floats(1, 2, 3, 4)
	want := func(row, col int) float32 {
		return format.E4M3.Decode(uint32(codes[row*cols+col])) * float32(1+row/128*2+col/128)
	}
	for config, scale := range map[string]rawTensor{
		`{"quant_method": "fp8", "weight_block_size": [128, 128]}`: {"l.weight_scale_inv", safetensors.F32, []int64{2, 2}, scales},
		`{"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}`:  {"l.weight_scale", safetensors.F32, []int64{2, 1, 2, 1}, scales},
		`{"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", ` +
			`"strategy": "block", "block_structure": [128, 128], "dynamic": false}}}}`: {"l.weight_scale", safetensors.F32, []int64{2, 2}, scales},
	} {
		m := readRaw(t, `{"quantization_config": `+config+`}`, nil, rawTensor{"l.weight", safetensors.F8E4M3, []int64{rows, cols}, codes}, scale)
		if len(m.Problems) > 0 {
			t.Errorf("%s: problems: %v", config, m.Problems)
		}
		checkValues(t, m, "l.weight", want)
		w, _ := m.Lookup("l.weight")
		tile, err := w.ReadTile(Tile{From: 128, To: 130, FromCol: 128, ToCol: cols})
		if err != nil || tile.Row(1)[5] != want(129, 133) {
			t.Errorf("a tile: %v, %v", tile.Row(1)[5], err)
		}
	}
}

// TestStackedBlocks reads the codes of all experts of a layer with scales of 128×128 blocks.
func TestStackedBlocks(t *testing.T) {
	const name, experts, in, out = "model.layers.0.mlp.experts.down_proj", 2, 160, 256
	codes, scales := pattern(experts*out*in, 37), make([]float32, experts*2*2)
	for i := range scales {
		scales[i] = float32(1+i) / 64
	}
	config := strings.Replace(ctConfiguration("", "float-quantized", `"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": `+
		`"float", `+
		`"symmetric": true, "dynamic": false, "strategy": "block", "block_structure": [128, 128]}}`), "llama4", "other", 1)
	m := readRaw(t, config, nil, rawTensor{name, safetensors.F8E4M3, []int64{experts, out, in}, codes},
		rawTensor{name + "_scale", safetensors.F32, []int64{experts, 2, 2}, floats(scales...)})
	checkValues(t, m, name, func(row, col int) float32 {
		return format.E4M3.Decode(uint32(codes[row*in+col])) * scales[row/128*2+col/128]
	})
}

// TestStackedBiases: the biases of gate and up are the even and odd elements of a row of gpt-oss.
func TestStackedBiases(t *testing.T) {
	m := readRaw(t, `{"model_type": "gpt_oss", "num_local_experts": 2}`, nil,
		rawTensor{"model.layers.0.mlp.experts.gate_up_proj_bias", safetensors.BF16, []int64{2, 4}, halves(1, 2, 3, 4, 5, 6, 7, 8)})
	parts := m.Stacked(m.Weights[0])
	if len(parts) != 2 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, want := range [][]float32{{1, 3, 5, 7}, {2, 4, 6, 8}} {
		x, err := parts[i].Read(0, 2)
		if err != nil || !slices.Equal(x.Data, want) {
			t.Errorf("%s is %v, want %v (%v)", parts[i].Name, x.Data, want, err)
		}
	}
}

// TestInterleavedBF16: a weight of every other row of a tensor is not read as contiguous rows.
func TestInterleavedBF16(t *testing.T) {
	m := readRaw(t, "", nil, rawTensor{"w.weight", safetensors.BF16, []int64{4, 2}, halves(1, 2, 3, 4, 5, 6, 7, 8)})
	of := m.Weights[0]
	for _, tc := range []struct {
		v    view
		has  bool
		want []float32
	}{{view{of, 1, 1, false}, true, []float32{3, 4, 5, 6}}, {view{of, 1, 2, false}, false, []float32{3, 4, 7, 8}}} {
		w := of.part("part.weight", 2, 2)
		w.view = &tc.v
		x, err := w.Read(0, 2)
		if err != nil || w.HasRowsBF16() != tc.has || !slices.Equal(x.Data, tc.want) {
			t.Errorf("step %d: rows in BF16 %v, values %v, want %v (%v)", tc.v.step, w.HasRowsBF16(), x.Data, tc.want, err)
		}
	}
}

// TestQuarkExport: vLLM rejects a configuration of Quark without the member export.
func TestQuarkExport(t *testing.T) {
	const weight = `"global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32, "qscheme": "per_group", "scale_format": "e8m0", ` +
		`"symmetric": true, "is_dynamic": false, "ch_axis": -1}}}`
	for member, faults := range map[string]int{`"export": {}, `: 0, `"export": null, `: 1, "": 1} {
		d, err := recognizeQuark([]byte(`{"quant_method": "quark", ` + member + weight))
		if err != nil || len(d.faults) != faults {
			t.Errorf("%q: faults %q, want %d (%v)", member, d.faults, faults, err)
		}
	}
}
