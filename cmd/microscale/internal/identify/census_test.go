package identify

import (
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestCensus counts blocks of zeros by scale, of -0 and of the smallest magnitude; those with a NaN count as read only.
func TestCensus(t *testing.T) {
	for _, tc := range []struct {
		f      quant.Format
		blocks [][]byte // of codes at their beginning; the others are 0
		tops   []int
		few    [2]int64 // -0, the smallest magnitude
	}{
		{quant.MXFP8, [][]byte{{}, {0x81, 0x80, 1}, {0x7f, 0x80, 1}, {0x7e, 0xfe}}, []int{1, 0x7e}, [2]int64{1, 2}},
		{quant.MXFP8E5M2, [][]byte{{}, {0x7c}, {0x7b}}, []int{0x7b}, [2]int64{}},
		{quant.MXINT8, [][]byte{{}, {0x80}, {0xff, 1, 0x7f}}, []int{128, 127}, [2]int64{0, 2}},
	} {
		made, err := quant.Quantizer{Format: tc.f}.Reference(tensor.New(1, 32*len(tc.blocks)), quant.Rowwise, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		clear(made.Codes)
		for i, block := range tc.blocks {
			copy(made.Codes[32*i:], block)
			made.Scales[i] = byte(100 + i)
		}
		c := census{f: tc.f, zeros: map[byte]int64{}}
		read := c.add(made)
		var tops []int
		for _, one := range c.blocks {
			tops = append(tops, one.top)
		}
		if read != int64(len(tc.blocks)) || !slices.Equal(tops, tc.tops) || len(c.zeros) != 1 || c.zeros[100] != 1 ||
			[2]int64{c.negatives, c.smallest} != tc.few {
			t.Errorf("%s: read %d, largest %v, want %v; zeros %v; -0 and smallest %d, %d, want %v", tc.f, read, tops, tc.tops, c.zeros,
				c.negatives, c.smallest, tc.few)
		}
	}
	made, err := quant.Quantizer{Format: quant.FP8Tensor}.Reference(tensor.New(3, 8), quant.Rowwise, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	clear(made.Codes)
	made.Codes[19] = 0x70 // in the last row
	c := census{f: quant.FP8Tensor, zeros: map[byte]int64{}}
	if c.add(made); len(c.blocks) != 1 || c.blocks[0].top != 0x70 {
		t.Errorf("a block of several rows: %v", c.blocks)
	}
}

// TestWriters: what quantizers make of blocks of zeros, of next to nothing, of the smallest scale and of -0. Rules have one name if they
// give nearly the same scales.
func TestWriters(t *testing.T) {
	with, without := "amax/6 with a global scale of amax/2688", "amax/6 without a global scale"
	for _, tc := range []struct {
		f                          quant.Format
		name, rule                 string
		low                        float64
		zero, least, lowest        byte
		writesMinus0, roundsMinus0 bool
	}{
		{quant.MXFP4, "te", "rceil", 0.75, 0, 0, 0, true, true},
		{quant.MXFP4, "ocp", "floor", 1, 0, 0, 0, true, true},
		{quant.MXFP4, "ggml", "floor", 1, 0, 0, 0, false, false},
		{quant.MXFP4, "compressed-tensors", "even", 0.875, 0, 0, 0, false, true},
		{quant.MXFP4, "mlx", "rceil", 0.75, 127, 0, 127, false, false},
		{quant.MXFP4, "mlx-0.31", "round", 0.75 * math.Sqrt2, 127, 0, 127, false, false},
		{quant.MXFP8, "modelopt", "rceil or even", 0.875, 0, 0, 0, true, true},
		{quant.MXFP8, "compressed-tensors", "rceil or even", 0.875, 0, 0, 0, false, true},
		{quant.MXFP8, "torchao", "floor", 1, 0, 0, 0, true, true},
		{quant.MXINT8, "te", "rceil or floor", 0.9921875, 0, 0, 0, false, false},
		{quant.NVFP4, "te", with, 0, 0, 0, 1, true, true},
		{quant.NVFP4, "torchao", with, 0, 8, 8, 8, true, true},
		{quant.NVFP4, "ggml", without, 0, 0, 0, 1, false, false},
		{quant.NVFP4, "modelopt", with, 0, 0x38, 0x38, 1, false, true},
		{quant.NVFP4, "compressed-tensors", with, 0, 0x20, 0x20, 1, false, true},
		{quant.FP8Row, "te", "amax/448", 0, 0, 0, 0, true, true},
	} {
		all, err := writersOf(tc.f)
		if err != nil {
			t.Fatal(err)
		}
		w := all[slices.IndexFunc(all, func(w writer) bool { return w.Name == tc.name })]
		if w.rule != tc.rule || math.Abs(w.low-tc.low) > 1e-5 || w.zero != tc.zero || w.least != tc.least || w.lowest != tc.lowest ||
			w.writesMinus0 != tc.writesMinus0 || w.roundsMinus0 != tc.roundsMinus0 {
			t.Errorf("%s by %s: %s %g %#x %#x %#x %v %v, want %+v", tc.f, tc.name, w.rule, w.low, w.zero, w.least, w.lowest, w.writesMinus0,
				w.roundsMinus0, tc)
		}
	}
}
