package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// parseTensors parses one tensor a line: its name, dtype and dimensions. ok is false if they are none, or large.
func parseTensors(text string) (specs []safetensors.Spec, ok bool) {
	total := int64(0)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		var dtype safetensors.Dtype
		if len(words) < 2 || len(words) > 6 || dtype.UnmarshalText([]byte(words[1])) != nil {
			return nil, false
		}
		shape, n := []int64{}, int64(1)
		for _, word := range words[2:] {
			d, err := strconv.ParseInt(word, 10, 64)
			if err != nil || d < 0 || d > 1<<10 {
				return nil, false
			}
			shape, n = append(shape, d), n*d
		}
		if total += n; total > 1<<17 || n*int64(dtype.Bits())%8 != 0 {
			return nil, false
		}
		specs = append(specs, safetensors.Spec{Name: words[0], Dtype: dtype, Shape: shape})
	}
	return specs, len(specs) > 0
}

// FuzzRead reads a checkpoint with any configuration, metadata and tensors. The result is the same each time, a problem
// is one line, and the values of a weight do not depend on the tiles in which they are read.
func FuzzRead(f *testing.F) {
	config := func(text string) string { return `{"model_type": "llama", "quantization_config": ` + text + `}` }
	const fp8 = "l.weight F8_E4M3 4 32\nl.weight_scale F32 4 1\nlm_head.weight BF16 8 32"
	f.Add(config(`{"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}`), "", "", fp8)
	f.Add(config(`{"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["re:.*head$", "re:("],
		"config_groups": {"g": {"targets": ["re:l"],
		"weights": `+ctRow+`}}}`), "", "", fp8)
	f.Add(config(`{"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32, "extra_config": {"m": {"bits": 8}, `+
		`"n": {"bits": 16}}}`), "", "",
		"l.weight_packed U8 4 16\nl.weight_scale U8 4 1\nm.weight F8_E4M3 4 32\nm.weight_scale U8 4 1")
	f.Add(config(`{"quant_method": "torchao"}`), "l.weight", `{"_type": "NVFP4Tensor", "_data": {"is_swizzled_scales": true}}`,
		"l._weight_qdata U8 130 48\nl._weight_scale F8_E4M3 256 8\nl._weight_per_tensor_scale F32")
	f.Add("", comfyLayers, `{"layers": {"l": {"format": "nvfp4"}, "m": {"format": "float8_e4m3fn"}}}`,
		"l.weight U8 130 48\nl.weight_scale F8_E4M3 256 8\nl.weight_scale_2 F32\nm.weight F8_E4M3 4 32\nm.weight_scale F32")
	f.Add("", "", "", "l.weight F8_E4M3 4 32\nl.qscale_weight F32\nl.comfy_quant U8 27\nm.scale_weight F32")
	f.Add(config(`{"quant_method": "quark", "exclude": [], "export": {}, "global_quant_config": {"weight": {"dtype": "fp4",
		"qscheme": "per_group", "group_size": 32,
		"scale_format": "e8m0"}}, "layer_quant_config": {"l": {"weight": [{"dtype": "fp4", "group_size": 16}, {"dtype": "fp8_e4m3"}]}}}`), "", "",
		"l.weight U8 4 16\nl.weight_scale F8_E4M3 4 2\nl.weight_scale_2 F32")
	f.Add(config(`{"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"l": {"quant_algo": "NVFP4"}, "m": `+
		`{"quant_algo": "FP8"}}}`), "", "",
		"l.weight U8 4 16\nl.weight_scale F8_E4M3 4 2\nl.weight_scale_2 F32\nm.weight F8_E4M3 4 32\nm.weight_scale F32\nm.input_scale F32")
	f.Add(config(`{"quant_method": "fp8", "weight_block_size": [128, 128]}`), "", "",
		"l.weight F8_E4M3 130 192\nl.weight_scale_inv F8_E8M0 2 2")
	f.Add(`{"model_type": "llama4", "quantization_config": {"quant_method": "fbgemm_fp8"}}`, "", "",
		"m.experts.gate_up_proj F8_E4M3 2 32 48\nm.experts.gate_up_proj_scale F32 2 1 48")
	f.Add(`{"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "quantization_config": {"group_size": 32, "bits": 4, "mode": `+
		`"mxfp4", "lm_head": false}}`, "", "",
		"l.weight U32 2 2 4\nl.scales U8 2 2 1")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, key, value, tensors string) {
		specs, ok := parseTensors(tensors)
		if !ok {
			t.Skip("no tensors, or too many")
		}
		writeFuzzed(t, dir, config, map[string]string{key: value}, specs)
		source, err := hf.Open(dir)
		if err != nil {
			t.Skip("no checkpoint: ", err)
		}
		defer source.Close()
		m := Read(source)
		if a, b := summary(m), summary(Read(source)); a != b {
			t.Errorf("a second time it is read as\n%s\nfirst\n%s", b, a)
		}
		for _, p := range m.Problems {
			if strings.ContainsAny(p.String(), "\n\r") {
				t.Errorf("the problem %q is not one line", p)
			}
		}
		for _, w := range m.Weights {
			if w.Dense() {
				readInTiles(t, w)
			}
		}
	})
}

// writeFuzzed writes a checkpoint, and skips the test if no file has such tensors.
func writeFuzzed(t *testing.T, dir, config string, metadata map[string]string, specs []safetensors.Spec) {
	t.Helper()
	delete(metadata, "")
	l, err := safetensors.NewLayout(specs, metadata)
	if err != nil {
		t.Skip("no file has these tensors: ", err)
	}
	path := filepath.Join(dir, safetensors.ShardName(1, 1))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the input before
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range specs {
		data := pattern(int(product(s.Shape)*int64(s.Dtype.Bits())/8), 2*i+7)
		for j := range data {
			data[j] &= 0x7f // no negative scales, which are rejected
		}
		if err := w.WriteTensorAt(s.Name, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), bytes.TrimSpace([]byte(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	if config == "" {
		if err := os.Remove(filepath.Join(dir, hf.ConfigName)); err != nil {
			t.Fatal(err)
		}
	}
}

// summary returns what was read of a checkpoint.
func summary(m *Model) string {
	var b strings.Builder
	fmt.Fprintln(&b, m.Convention, m.Scheme, m.Ignore, m.Missing)
	for _, w := range m.Weights {
		fmt.Fprintln(&b, w.Name, w.FormatName(), w.Shape)
	}
	for _, p := range m.Problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// readInTiles compares the values of a weight with those of its tiles.
func readInTiles(t *testing.T, w *Weight) {
	t.Helper()
	rows, cols := w.Matrix()
	if rows == 0 || cols == 0 || len(w.Shape) == 0 {
		return
	}
	whole, err := w.Read(0, rows)
	if err != nil { // for its scales
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("the error %q is not one line", err)
		}
		return
	}
	row, col := rows/2, cols/2
	if block := w.Format.Block; w.Quantized() {
		row, col = row/max(1, block.Rows)*max(1, block.Rows), col/max(1, block.Cols)*max(1, block.Cols)
	}
	for _, tile := range []Tile{{From: row, To: rows, ToCol: cols}, {From: row, To: rows, FromCol: col, ToCol: cols}} {
		x, err := w.ReadTile(tile)
		if err != nil {
			t.Fatalf("%s: %v", w.Name, err)
		}
		for i := range x.Rows {
			if !slices.EqualFunc(x.Row(i), whole.Row(row + i)[tile.FromCol:], func(a, b float32) bool {
				return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
			}) {
				t.Fatalf("%s: row %d of a tile differs from the whole", w.Name, row+i)
			}
		}
	}
}

// TestReadRepeats reads checkpoints whose description is a JSON object of several modules or a map of metadata: the
// result does not depend on their order.
func TestReadRepeats(t *testing.T) {
	f4 := func(module string) []rawTensor {
		return []rawTensor{{module + ".weight_packed", safetensors.U8, []int64{4, 16}, nil}, {module + ".weight_scale", safetensors.U8,
			[]int64{4, 1}, nil}}
	}
	for _, tc := range []struct {
		name, config, metadata, scheme string
		tensors                        []rawTensor
	}{
		{"comfyui", "", `{"layers": {"a": {"format": "float8_e4m3fn"}, "b": {"format": "mxfp8"}, "c": {"format": "int8"}, "d": {"format": ` +
			`"int4"}}}`, ctMixed, []rawTensor{
			{"a.weight", safetensors.F8E4M3, []int64{4, 32}, nil}, {"a.weight_scale", safetensors.F32, nil, floats(1)},
			{"b.weight", safetensors.F8E4M3, []int64{4, 32}, nil}, {"b.weight_scale", safetensors.U8, []int64{128, 4}, nil}}},
		{"auto-round", `{"quantization_config": {"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32, ` +
			`"extra_config": {"a": {"bits": 8}, "b": {"bits": 3}, "c": {"bits": 2}}}}`,
			"", "", f4("l")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			metadata := map[string]string{comfyLayers: tc.metadata}
			if tc.metadata == "" {
				metadata = nil
			}
			m := readRaw(t, tc.config, metadata, tc.tensors...)
			if m.Scheme != tc.scheme {
				t.Errorf("the scheme is %q, want %q", m.Scheme, tc.scheme)
			}
			for range 20 {
				if a, b := summary(m), summary(Read(m.Source)); a != b {
					t.Fatalf("it is read as\n%s\nand as\n%s", a, b)
				}
			}
		})
	}
}

// TestAutoRoundTypes: the size of groups decides between block formats of the same elements.
func TestAutoRoundTypes(t *testing.T) {
	for arguments, want := range map[string]string{
		`"bits": 8, "data_type": "fp", "group_size": 0`:                "fp8-tensor",
		`"bits": 8, "data_type": "fp", "group_size": -1`:               "fp8-row",
		`"bits": 8, "data_type": "fp", "group_size": [128, 128]`:       "fp8-block128",
		`"bits": 8, "data_type": "mx_fp_rceil", "group_size": 32`:      "mxfp8",
		`"bits": 4, "data_type": "nv_fp4_with_gs", "group_size": 16`:   "nvfp4",
		`"bits": 4, "data_type": "mx_fp", "group_size": 64`:            "",
		`"bits": 6, "data_type": "mx_fp", "group_size": 32`:            "",
		`"bits": 4, "data_type": "nvfp4_v2", "group_size": 64`:         "",
		`"bits": 4, "data_type": "int", "sym": true, "group_size": 32`: "",
	} {
		d, err := recognizeAutoRound([]byte("{" + arguments + "}"))
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "not supported")):
			t.Errorf("%s: %v, want an error", arguments, err)
		case want != "" && (err != nil || len(d.groups) != 1 || d.groups[0].format.Name != want):
			t.Errorf("%s: %v, %v, want %s", arguments, d.groups, err, want)
		}
	}
}
