package verify_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// TestUnbounded: rotated weights have no bound of an element. Sound ones are not called bounded, and those whose values are lost, scaled
// or unrelated to the source are a problem.
func TestUnbounded(t *testing.T) {
	const rows, cols, module = 32, 64, "model.layers.0.mlp.up_proj"
	floats := func(x []float32) (data []byte) {
		for _, v := range x {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	matrix := func(diagonal float32) []byte {
		h := make([]float32, 32*32)
		for i := range 32 {
			h[33*i] = diagonal
		}
		return floats(h)
	}
	random := rand.New(rand.NewPCG(1, 2))
	codes, fp4 := make([]byte, rows*cols/2), [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	x := make([]float32, 0, rows*cols)
	for i := range codes {
		codes[i] = byte(random.Uint32())
		for _, code := range []byte{codes[i] & 15, codes[i] >> 4} {
			v := fp4[code&7]
			if code > 7 {
				v = -v
			}
			x = append(x, v+(2*random.Float32()-1)/2)
		}
	}
	other := make([]byte, len(codes))
	for i := range other {
		other[i] = byte(random.Uint32())
	}
	source := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"}, config: map[string]any{}}
	source.set(module+".weight", safetensors.F32, []int64{rows, cols}, floats(x))
	src := t.TempDir()
	source.write(t, src)
	for name, c := range map[string]struct {
		suffix string
		data   []byte
		want   string
	}{
		"sound":         {},
		"zero matrix":   {".forward_hadamard_matrix", matrix(0), "its SQNR is 0.00 dB, below the minimum of 3 dB"},
		"twice":         {".forward_hadamard_matrix", matrix(2), "below the minimum of 3 dB"},
		"negative":      {".forward_hadamard_matrix", matrix(-1), "below the minimum of 3 dB"},
		"not a number":  {".forward_hadamard_matrix", matrix(float32(math.NaN())), "of its values are NaN or Inf"},
		"least scales":  {".scales", make([]byte, rows*cols/32), "its SQNR is 0.00 dB"},
		"other codes":   {".qweight", other, "below the minimum of 3 dB"},
		"large divisor": {".weight_global_scale", floats([]float32{1 << 40}), "its SQNR is 0.00 dB"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &directory{tensors: map[string]entry{}, metadata: map[string]string{"format": "pt"}, config: map[string]any{
				"quantization_config": map[string]any{"quant_method": "fp_quant", "forward_dtype": "mxfp4"}}}
			scales := []byte(strings.Repeat("\x7f", rows*cols/32))
			d.set(module+".qweight", safetensors.U8, []int64{rows, cols / 2}, codes)
			d.set(module+".scales", safetensors.U8, []int64{rows, cols / 32}, scales)
			d.set(module+".weight_global_scale", safetensors.F32, []int64{1}, floats([]float32{1}))
			d.set(module+".forward_hadamard_matrix", safetensors.F32, []int64{32, 32}, matrix(1))
			if e, ok := d.tensors[module+c.suffix]; ok {
				d.set(module+c.suffix, e.Dtype, e.Shape, c.data)
			}
			dir := t.TempDir()
			d.write(t, dir)
			r := compare(t, open(t, src), open(t, dir), verify.Options{})
			if r.OK() != (c.want == "") || c.want != "" && !strings.Contains(r.Problems[0].Text, c.want) {
				t.Errorf("problems are %v, want %q", r.Problems, c.want)
			}
			if r.Checked(verify.Unbounded) != 1 || r.Checked(verify.DecodedOnly) != 0 || len(r.NotCompared) == 0 {
				t.Errorf("checks are %v, not compared %q", r.Checks, r.NotCompared)
			}
		})
	}
}
