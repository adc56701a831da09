package lint

import (
	"bytes"
	"encoding/binary"
	mathbits "math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// identity returns an orthogonal matrix of 32 rows in BF16.
func identity() []byte {
	data := make([]byte, 2*32*32)
	for i := range 32 {
		copy(data[2*33*i:], []byte{0x80, 0x3f})
	}
	return data
}

// TestRotated: the matrix of a rotated weight is orthogonal and has the size of the configuration, and its scales are numbers.
func TestRotated(t *testing.T) {
	const module = layer0 + "mlp.down_proj"
	matrix, scales := module+".forward_hadamard_matrix", module+".scales"
	for name, c := range map[string]struct {
		damage func(d *directory)
		want   string // id of the rule; "": none
	}{
		"sound":      {func(*directory) {}, ""},
		"hadamard":   {func(d *directory) { copy(d.tensors[matrix].data, hadamard()) }, ""},
		"a sign":     {func(d *directory) { copy(d.tensors[matrix].data, hadamard()); d.tensors[matrix].data[2*32+1] ^= 0x80 }, "L64"},
		"zero":       {func(d *directory) { clear(d.tensors[matrix].data) }, "L64"},
		"no number":  {func(d *directory) { copy(d.tensors[matrix].data[4:], []byte{0xc0, 0x7f}) }, "L64"},
		"twice":      {func(d *directory) { copy(d.tensors[matrix].data, []byte{0, 0x40}) }, "L64"},
		"two equal":  {func(d *directory) { copy(d.tensors[matrix].data[64:128], d.tensors[matrix].data) }, "L64"},
		"size":       {func(d *directory) { d.quantization()["hadamard_group_size"] = 128 }, "L65"},
		"scales NaN": {func(d *directory) { copy(d.tensors[scales].data, []byte{0xff}) }, "L32"},
		"scales 0":   {func(d *directory) { clear(d.tensors[scales].data) }, "L66"},
	} {
		d := directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "llama", "quantization_config": map[string]any{
			"quant_method": "fp_quant", "forward_dtype": "mxfp4", "hadamard_group_size": 32}}}
		d.set(module+".qweight", safetensors.U8, []int64{32, 16}, make([]byte, 512))
		d.set(scales, safetensors.U8, []int64{32, 1}, bytes.Repeat([]byte{0x7f}, 32))
		d.set(module+".weight_global_scale", safetensors.F32, []int64{1}, float(3))
		d.set(module+".act_global_scale", safetensors.F32, []int64{1}, float(3))
		d.set(matrix, safetensors.BF16, []int64{32, 32}, identity())
		c.damage(&d)
		dir := t.TempDir()
		d.write(t, dir)
		r := check(t, dir, "vllm")
		if n := len(r.Findings); c.want == "" && n > 0 || c.want != "" && (n != 1 || r.Findings[0].Rule.ID != c.want) {
			t.Errorf("%s: found %s, want %q", name, texts(r), c.want)
		}
	}
}

// hadamard returns the matrix of Sylvester of 32 rows in BF16, whose numbers, 1/√32, are rounded.
func hadamard() (data []byte) {
	for i := range 32 {
		for j := range 32 {
			sign := uint16(mathbits.OnesCount(uint(i&j))) << 15
			data = binary.LittleEndian.AppendUint16(data, sign|0x3e35)
		}
	}
	return data
}

// TestRotations: fused weights of FP-Quant have one matrix and one divisor. A list entry matches the end of a name.
func TestRotations(t *testing.T) {
	const attn = layer0 + "self_attn."
	for changed, want := range map[string]string{"": "", "k_proj in F16": "L62", "none in q_proj": "k_proj.act_global_scale",
		"k_proj.forward_hadamard_matrix": "L62", "v_proj.weight_global_scale": "L62",
		"o_proj.forward_hadamard_matrix": "", "q_proj.act_global_scale": "L62"} {
		d := directory{tensors: map[string]entry{}, config: map[string]any{"model_type": "llama", "quantization_config": map[string]any{
			"quant_method": "fp_quant", "forward_dtype": "mxfp4", "modules_to_not_convert": []any{"up_proj"}}}}
		for _, module := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			d.set(attn+module+".qweight", safetensors.U8, []int64{32, 16}, make([]byte, 512))
			d.set(attn+module+".scales", safetensors.U8, []int64{32, 1}, bytes.Repeat([]byte{0x7f}, 32))
			d.set(attn+module+".weight_global_scale", safetensors.F32, []int64{1}, float(3))
			d.set(attn+module+".act_global_scale", safetensors.F32, []int64{1}, float(3))
			d.set(attn+module+".forward_hadamard_matrix", safetensors.BF16, []int64{32, 32}, identity())
		}
		d.set(layer0+"mlp.up_proj.weight", safetensors.BF16, []int64{32, 32}, values(2, 1024))
		switch changed {
		case "":
		case "k_proj in F16": // of the same bytes
			d.set(attn+"q_proj.act_global_scale", safetensors.BF16, []int64{1}, []byte{0x40, 0x40})
			d.set(attn+"k_proj.act_global_scale", safetensors.F16, []int64{1}, []byte{0x40, 0x40})
			delete(d.tensors, attn+"v_proj.act_global_scale")
		case "none in q_proj": // the first with one is named
			delete(d.tensors, attn+"q_proj.act_global_scale")
			d.tensors[attn+"v_proj.act_global_scale"].data[1] ^= 1
		default:
			d.tensors[attn+changed].data[1] ^= 0x80
		}
		dir := t.TempDir()
		d.write(t, dir)
		r := check(t, dir, "vllm")
		if got := texts(r); want == "" && len(r.Findings) > 0 || !strings.Contains(got, want) ||
			slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule.ID != "L62" }) {
			t.Errorf("%s changed: found %s, want %q", changed, got, want)
		}
	}
}
