package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestCompressedTensorsConfiguration compares quantization_config byte by byte with the output
// of the library's writer (json.dump, indent 2, sorted keys). The golden files were made with
// Python from the presets of compressed-tensors 0.14 (quantization/quant_scheme.py) and the
// defaults of their fields (quantization/quant_args.py); FP8_BLOCK_A16's is FP8_BLOCK's without
// input_activations, by its version 0.20.
func TestCompressedTensorsConfiguration(t *testing.T) {
	for _, s := range compressedTensors.schemes {
		t.Run("scheme="+s.name, func(t *testing.T) {
			name := s.name
			if strings.HasSuffix(name, "A16") && s.format.Scale == format.BF16 { // several formats have the scheme
				name += "-" + s.format.Name
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			c, err := compressedTensors.With(s.format, s.name)
			if err != nil {
				t.Fatal(err)
			}
			ignore := []string{"lm_head", "model.layers.0.mlp.gate"}
			got, err := json.MarshalIndent(c.Configuration(s.format, Settings{Ignore: ignore}), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, '\n'); !bytes.Equal(got, want) {
				t.Errorf("quantization_config is\n%s\nwant\n%s", got, want)
			}
			read, err := compressedTensors.recognize(want)
			if err != nil || !slices.Equal(read.groups, []group{{s.format, s.activations == Static, s.name}}) || read.scheme != s.name ||
				!slices.Equal(read.ignore, ignore) || len(read.faults) > 0 {
				t.Errorf("it is recognized as %+v, %v", read, err)
			}
		})
	}
}

// TestCompressedTensorsStored checks the tensors of each preset for a weight of 300×256, as the
// library initializes (quantization/lifecycle/initialize.py) and compresses them. FP8 scales
// are F32, which its readers accept besides the dtype of the model.
func TestCompressedTensorsStored(t *testing.T) {
	for _, tc := range []struct {
		format quant.Format
		want   string
	}{
		{quant.MXFP8, "x.weight F8_E4M3 [300 256], x.weight_scale U8 [300 8]"},
		{quant.MXFP4, "x.weight_packed U8 [300 128], x.weight_scale U8 [300 8]"},
		{quant.NVFP4, "x.weight_packed U8 [300 128], x.weight_scale F8_E4M3 [300 16], x.weight_global_scale F32 [1]"},
		{quant.FP8Tensor, "x.weight F8_E4M3 [300 256], x.weight_scale F32 [1]"},
		{quant.FP8Row, "x.weight F8_E4M3 [300 256], x.weight_scale F32 [300 1]"},
		{quant.FP8Block, "x.weight F8_E4M3 [300 256], x.weight_scale F32 [3 2]"},
		{ints("int4-g32"), "x.weight_packed I32 [300 32], x.weight_scale BF16 [300 8], x.weight_shape I64 [2]"},
		{ints("int4-g64"), "x.weight_packed I32 [300 32], x.weight_scale BF16 [300 4], x.weight_shape I64 [2]"},
		{ints("int4-g128"), "x.weight_packed I32 [300 32], x.weight_scale BF16 [300 2], x.weight_shape I64 [2]"},
		{ints("int8-g128"), "x.weight_packed I32 [300 64], x.weight_scale BF16 [300 2], x.weight_shape I64 [2]"},
		{ints("int8-row"), "x.weight I8 [300 256], x.weight_scale BF16 [300 1]"},
	} {
		t.Run("format="+tc.format.Name, func(t *testing.T) {
			if got := storedText(&compressedTensors, tc.format, 300, 256); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	if n := len(compressedTensors.Formats()); n != 11 {
		t.Errorf("the convention holds %d formats, and 11 are tested", n)
	}
}

// ints returns a block format of integers.
func ints(name string) quant.Format {
	f, err := quant.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

func storedText(c *Convention, f quant.Format, rows, cols int64) string {
	return specsText(c.Stored(f, "x.weight", []int64{rows, cols}))
}

func specsText(stored []Stored) string {
	var parts []string
	for _, s := range stored {
		parts = append(parts, fmt.Sprintf("%s %s %v", s.Name, s.Dtype, s.Shape))
	}
	return strings.Join(parts, ", ")
}

// TestPlainStored checks the tensors of each format in the plain convention, for a weight whose
// width is a multiple of no block size.
func TestPlainStored(t *testing.T) {
	want := map[string]string{
		"mxfp8":        "x.weight F8_E4M3 [130 288], x.weight_scale U8 [130 9]",
		"mxfp8-e5m2":   "x.weight F8_E5M2 [130 288], x.weight_scale U8 [130 9]",
		"mxfp6-e3m2":   "x.weight U8 [130 216], x.weight_scale U8 [130 9]",
		"mxfp6-e2m3":   "x.weight U8 [130 216], x.weight_scale U8 [130 9]",
		"mxfp4":        "x.weight U8 [130 144], x.weight_scale U8 [130 9]",
		"mxint8":       "x.weight I8 [130 288], x.weight_scale U8 [130 9]",
		"nvfp4":        "x.weight U8 [130 136], x.weight_scale F8_E4M3 [130 17], x.weight_scale_2 F32 [1]",
		"fp8-tensor":   "x.weight F8_E4M3 [130 257], x.weight_scale F32 [1]",
		"fp8-row":      "x.weight F8_E4M3 [130 257], x.weight_scale F32 [130 1]",
		"fp8-vec128":   "x.weight F8_E4M3 [130 384], x.weight_scale F32 [130 3]",
		"fp8-block128": "x.weight F8_E4M3 [130 384], x.weight_scale F32 [2 3]",
		"mxfp8-32x32":  "x.weight F8_E4M3 [130 288], x.weight_scale U8 [5 9]",
		"nvfp4-16x16":  "x.weight U8 [130 136], x.weight_scale F8_E4M3 [9 17], x.weight_scale_2 F32 [1]",
		"int4-g32":     "x.weight U8 [130 144], x.weight_scale BF16 [130 9]",
		"int4-g64":     "x.weight U8 [130 160], x.weight_scale BF16 [130 5]",
		"int4-g128":    "x.weight U8 [130 192], x.weight_scale BF16 [130 3]",
		"int8-g128":    "x.weight I8 [130 384], x.weight_scale BF16 [130 3]",
		"int8-row":     "x.weight I8 [130 257], x.weight_scale BF16 [130 1]",
	}
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		if got := storedText(&plain, f, 130, 257); got != want[f.Name] {
			t.Errorf("%s: %s, want %s", f, got, want[f.Name])
		}
		delete(want, f.Name)
	}
	for name := range want {
		t.Errorf("%s is no format", name)
	}
}

// TestRecognizeForeign: a configuration that matches no preset is an error that names the
// difference.
func TestRecognizeForeign(t *testing.T) {
	group := func(weights string) string { return `{"config_groups":{"group_0":{"weights":` + weights + `}}}` }
	for _, tc := range []struct{ name, config, want string }{
		{"int4 of columns", group(`{"num_bits":4,"type":"int","strategy":"channel"}`), "type int, 4 bits, strategy channel"},
		{"int4 with zero points", group(`{"num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":false}`), "symmetric false"},
		{"int4 of permuted columns", group(`{"num_bits":4,"type":"int","strategy":"group","group_size":128,"actorder":"group"}`),
			"actorder group"},
		{"group", group(`{"num_bits":8,"type":"float","strategy":"group","group_size":64}`), "type float, 8 bits, strategy group"},
		{"mxfp8 without a dtype of scales", group(`{"num_bits":8,"type":"float","strategy":"group","group_size":32}`),
			"group size 32, no scale dtype"},
		{"mxfp8 with other scales", group(`{"num_bits":8,"type":"float","strategy":"group","group_size":32,"scale_dtype":"torch.float32"}`),
			"group size 32, scale dtype torch.float32"},
		{"blocks", group(`{"num_bits":8,"type":"float","strategy":"block","block_structure":[64,64]}`), "blocks [64 64]"},
		{"nothing", `{"config_groups":{}}`, "quantizes no weights"},
		{"activations", `{"config_groups":{"group_0":{"weights":null}}}`, "quantizes no weights"},
		{"type", `{"config_groups":[]}`, "config_groups is a JSON array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := compressedTensors.recognize([]byte(tc.config)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestExactOrRegexp: entries are exact names, or patterns that match from the beginning of a
// name as Python's re.match does.
func TestExactOrRegexp(t *testing.T) {
	ignored := exactOrRegexp([]string{"lm_head", "model.layers.0", "re:.*gate$", "re:vision", "re:a|b"})
	for name, want := range map[string]bool{
		"lm_head": true, "lm_head.x": false, "x.lm_head": false, "model.layers.0": true, "model.layers.0.mlp": false,
		"mlp.gate": true, "mlp.gate_proj": false, "vision.x": true, "x.vision": false, "axe": true, "bxe": true, "xa": false,
	} {
		if got := ignored(name); got != want {
			t.Errorf("%s: ignored is %v, want %v", name, got, want)
		}
	}
}

// TestFaulty: a problem of a part is one of its weight, but not of a weight whose name merely
// has the same prefix.
func TestFaulty(t *testing.T) {
	m := &Model{}
	for _, tensor := range []string{"l.1.weight_global_scale", "l.22.weight", "lm_headed.weight", ""} {
		m.fault(tensor, "a problem")
	}
	for weight, want := range map[string]bool{
		"l.1.weight": true, "l.22.weight": true, "lm_headed.weight": true,
		"l.2.weight": false, "l.2": false, "lm_head": false, "l.1": false, "": true,
	} {
		if got := m.faulty(weight); got != want {
			t.Errorf("%q: a problem is known: %v, want %v", weight, got, want)
		}
	}
}

// TestOffsetBinary: element i of a word has bits 4i to 4i+3, plus 8, as pack_to_int32 of compressed-tensors stores it.
func TestOffsetBinary(t *testing.T) {
	q, err := quant.NewTensor(ints("int4-g32"), 1, 32)
	if err != nil {
		t.Fatal(err)
	}
	codes := make([]byte, 32)
	for i := range codes {
		codes[i] = byte(i-8) & 15 // -8, -7, …
	}
	q.Format.Element.Join(q.Codes, codes)
	got, err := compressedTensors.Bytes(q, Codes, safetensors.I32)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{0x76543210, 0xfedcba98, 0x76543210, 0xfedcba98} {
		if word := binary.LittleEndian.Uint32(got[4*i:]); word != want {
			t.Errorf("word %d is %#x, want %#x", i, word, want)
		}
	}
}
