package lint

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestPaddedScales: vLLM takes the rows of its parameter from scales of q_proj, and the columns from those of what leads back from it,
// whatever its name, and compares the other dimension.
func TestPaddedScales(t *testing.T) {
	for _, tc := range []struct {
		module     string // beside q_proj
		rows, cols int64  // of the weight, whose scales are 128×4
		found      bool
	}{
		{"q_proj", 128, 128, false}, {"q_proj", 32, 128, false}, {"q_proj", 128, 32, true}, {"q_proj", 32, 32, true},
		{"o_proj", 128, 128, false}, {"o_proj", 32, 128, true}, {"o_proj", 128, 32, false}, {"o_proj", 32, 32, true},
		{"dense", 32, 128, true}, {"dense", 128, 32, false}, // its rows are the columns of q_proj
		{"q_b_proj", 64, 128, false}, {"q_b_proj", 128, 32, false}, {"q_b_proj", 64, 32, true},
	} {
		d := directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "llama", "quantization_config": map[string]any{
			"quant_method": "fp_quant", "forward_dtype": "mxfp4", "modules_to_not_convert": []any{}}}}
		name := layer0 + "self_attn." + tc.module
		set := func(name string, rows, cols, scaleRows, scaleCols int64) {
			d.set(name+".qweight", safetensors.U8, []int64{rows, cols / 2}, make([]byte, rows*cols/2))
			d.set(name+".scales", safetensors.U8, []int64{scaleRows, scaleCols}, bytes.Repeat([]byte{0x7f}, int(scaleRows*scaleCols)))
			d.set(name+".weight_global_scale", safetensors.F32, []int64{1}, float(3))
			d.set(name+".act_global_scale", safetensors.F32, []int64{1}, float(3))
			d.set(name+".forward_hadamard_matrix", safetensors.BF16, []int64{32, 32}, identity())
		}
		width := tc.rows // of the residual stream
		if tc.module == "q_b_proj" {
			width += 32
		}
		set(layer0+"self_attn.q_proj", 64, width, 64, width/32)
		set(name, tc.rows, tc.cols, 128, 4)
		dir := t.TempDir()
		d.write(t, dir)
		r := check(t, dir, "vllm")
		found := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule.ID == "L63" && f.Tensor == name+".weight" })
		if found != tc.found || len(r.Findings) > 1 || len(r.Findings) == 1 && !found {
			t.Errorf("%s of %d×%d: found %s, want %t", tc.module, tc.rows, tc.cols, texts(r), tc.found)
		}
	}
}

// TestScalesOfValues: scales that are values are counted as those of a byte are, also of integers that are read as values.
func TestScalesOfValues(t *testing.T) {
	ints := func(scheme, name string) stored {
		f, err := quant.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return stored{format: f, convention: "compressed-tensors", scheme: scheme}
	}
	for _, s := range []stored{ctFP8, ints("W8A8", "int8-row"), ints("W8A16", "int8-row"), ints("W4AFP8", "int4-g128")} {
		dir := dense(128, 128).quantize(t, s)
		for _, bad := range []float32{-1, float32(math.Inf(1)), float32(math.NaN()), 1} {
			d := readDirectory(t, dir)
			scales := d.tensors[layer0+"mlp.up_proj.weight_scale"]
			raw := float(bad)
			copy(scales.data, raw[4-scales.Dtype.Bits()/8:])
			damaged := t.TempDir()
			d.write(t, damaged)
			found := strings.Contains(texts(check(t, damaged, "vllm")), "1 of 128 scales are NaN, Inf or negative")
			if found == (bad == 1) {
				t.Errorf("%s %s: scale %g, found %t", s.format, s.scheme, bad, found)
			}
		}
	}
}

// TestScalesOfRows: without Options.Scales those of whole tensors are read, and those of rows in files on disk.
func TestScalesOfRows(t *testing.T) {
	tensor := stored{format: quant.FP8Tensor, convention: "compressed-tensors", scheme: "FP8"}
	for name, tc := range map[string]struct {
		stored stored
		value  float32
		want   string // id of the rule; "": none
	}{
		"tensor NaN": {tensor, float32(math.NaN()), "L32"}, "tensor 0": {tensor, 0, "L66"}, "row Inf": {ctFP8, float32(math.Inf(1)), "L32"},
		"row 0": {ctFP8, 0, "L66"}, "block NaN": {ctNVFP4, float32(math.NaN()), ""}, "tile NaN": {ctBlocks, float32(math.NaN()), ""},
		"row on a server": {ctFP8, float32(math.NaN()), ""}, "tensor on a server": {tensor, 0, "L66"},
	} {
		dir := dense(256, 256).quantize(t, tc.stored)
		d := readDirectory(t, dir)
		e := d.tensors[layer0+"mlp.up_proj.weight_scale"]
		if copy(e.data, bytes.Repeat(float(tc.value), len(e.data)/4)); e.Dtype == safetensors.F8E4M3 {
			e.data[0] = 0x7f
		}
		d.write(t, dir)
		m := open(t, dir)
		if strings.HasSuffix(name, "server") {
			m = served(t, dir)
		}
		r, err := Run(t.Context(), m, Options{Clients: chosenClients(t, "vllm")})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Findings); tc.want == "" && n > 0 || tc.want != "" && (n != 1 || r.Findings[0].Rule.ID != tc.want) {
			t.Errorf("%s: found %s, want %q", name, texts(r), tc.want)
		}
	}
}
