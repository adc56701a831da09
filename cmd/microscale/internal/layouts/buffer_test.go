package layouts

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

func layoutOf(t *testing.T, name string) Layout {
	t.Helper()
	l, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// weights quantizes a matrix whose rows and columns differ in magnitude by factors up to spread.
func weights(t *testing.T, f quant.Format, rows, cols int, spread float64) *quant.Tensor {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	byCol := make([]float64, cols)
	for j := range byCol {
		byCol[j] = 1 + spread*random.Float64()
	}
	x := tensor.New(rows, cols)
	for i := range rows {
		row := 1 + spread*random.Float64()
		for j := range cols {
			x.Data[i*cols+j] = float32(random.NormFloat64() * row * byCol[j])
		}
	}
	w, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestConvert converts real scales, and codes with scales, to every layout and back.
func TestConvert(t *testing.T) {
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Vec128, quant.FP8Block, quant.MXFP8x32} {
		w := weights(t, f, 130, 320, 3)
		b := Buffer{f, 130, 320}
		rows, blocks := b.scaleShape()
		plain := w.ScaleBytes()
		if f.ByteScales() {
			var err error
			if plain, err = layout.RowMajor.Scales(w); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range Layouts() {
			from, src := layout.RowMajor.String(), plain
			if !l.Scales() {
				if b.fits(l) != nil {
					continue
				}
				from, src = Separate.Name, append(bytes.Clone(w.Codes), w.ScaleBytes()...)
			}
			there, err := b.Convert(src, l, layoutOf(t, from))
			if err != nil {
				t.Fatal(err)
			}
			if l.Scales() && len(there) != l.order.Size(rows, blocks)*f.Scale.StoredBits()/8 {
				t.Errorf("%s in %s: got %d bytes", f, l, len(there))
			}
			back, err := b.Convert(there, layoutOf(t, from), l)
			if err != nil || !bytes.Equal(back, src) {
				t.Errorf("%s in %s: the round trip differs: %v", f, l, err)
			}
		}
	}
}

// TestQ8 converts Q8_0, whose scales are FP16 in ggml's structs and beside separate codes.
func TestQ8(t *testing.T) {
	b := Buffer{quant.Q8_0, 2, 64}
	var separate, want []byte
	for i := range 128 {
		separate = append(separate, byte(i))
	}
	for i := range 4 {
		scale := []byte{byte(200 + i), byte(210 + i)}
		separate = append(separate, scale...)
		want = append(append(want, scale...), separate[32*i:][:32]...)
	}
	got, err := b.Convert(separate, layoutOf(t, ggml.BlockQ80.Name), Separate)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x and %v, want %x", got, err, want)
	}
	if back, err := b.Convert(want, Separate, layoutOf(t, ggml.BlockQ80.Name)); err != nil || !bytes.Equal(back, separate) {
		t.Errorf("got %x and %v back, want %x", back, err, separate)
	}
}

// TestFind plants scales in every layout. Where rows or columns have structure, or padding
// tells, Find names the layout; noise alone is not certain.
func TestFind(t *testing.T) {
	for _, tc := range []struct {
		format     quant.Format
		rows, cols int
	}{{quant.MXFP8, 256, 1024}, {quant.NVFP4, 256, 512}, {quant.MXFP8, 130, 1056}, {quant.FP8Vec128, 512, 4096}} {
		w := weights(t, tc.format, tc.rows, tc.cols, 30)
		b := Buffer{tc.format, tc.rows, tc.cols}
		for _, l := range Layouts() {
			if !l.Scales() {
				continue
			}
			src, err := b.Convert(w.ScaleBytes(), l, layoutOf(t, layout.RowMajor.String()))
			if err != nil {
				t.Fatal(err)
			}
			found, certain := b.Find(src)
			same, err := b.Convert(src, layoutOf(t, layout.RowMajor.String()), found[0].Layout)
			if err != nil || !bytes.Equal(same, w.ScaleBytes()) || !certain {
				t.Errorf("%s %d×%d in %s: found %s, certain: %v, structure %.3f and %.3f", tc.format, tc.rows, tc.cols, l, found[0].Layout, certain,
					found[0].Structure, found[1].Structure)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	src := make([]byte, 256*32)
	for i := range src {
		src[i] = byte(120 + random.IntN(8))
	}
	found, certain := Buffer{quant.MXFP8, 256, 1024}.Find(src)
	if certain || found[0].Err != nil {
		t.Errorf("noise: found %s, certain: %v", found[0].Layout, certain)
	}
	if found, certain := (Buffer{quant.MXFP8, 256, 1024}).Find(src[1:]); certain || found[0].Err == nil {
		t.Errorf("a byte less: found %s, certain: %v", found[0].Layout, certain)
	}
	// Codes with scales: the size alone decides between the struct and separate parts.
	w := weights(t, quant.MXFP4, 4, 64, 1)
	structs, err := Buffer{quant.MXFP4, 4, 64}.Convert(append(bytes.Clone(w.Codes), w.ScaleBytes()...), layoutOf(t, ggml.BlockMXFP4.Name),
		Separate)
	if err != nil {
		t.Fatal(err)
	}
	possible := 0
	for _, c := range func() []Candidate { c, _ := Buffer{quant.MXFP4, 4, 64}.Find(structs); return c }() {
		if c.Err == nil {
			possible++
		}
	}
	if possible != 2 {
		t.Errorf("got %d possible layouts, want separate and block_mxfp4", possible)
	}
}

// TestEqualScales: rows and columns explain nothing of scales that are all equal.
func TestEqualScales(t *testing.T) {
	b := Buffer{quant.MXFP8, 35, 128}
	found, certain := b.Find(bytes.Repeat([]byte{255}, 35*4))
	if found[0].Layout.Name != "row-major" || found[0].Structure != 0 || !certain {
		t.Errorf("got %s, which explains %v, certain: %v, want row-major, 0", found[0].Layout, found[0].Structure, certain)
	}
}

// TestNaNScales: Check and Convert reject a NaN scale in any layout, and name its row and block.
func TestNaNScales(t *testing.T) {
	const rows, row, block = 5, 3, 1
	for _, tc := range []struct {
		format quant.Format
		cols   int
		nan    []byte
	}{
		{quant.MXFP8, 96, []byte{0xff}},
		{quant.MXFP4, 96, []byte{0xff}},
		{quant.NVFP4, 64, []byte{0x7f}},
		{quant.NVFP4, 64, []byte{0xff}},
		{quant.FP8Vec128, 384, []byte{0, 0, 0xc0, 0xff}},
		{quant.Q8_0, 96, []byte{1, 0x7c}},
	} {
		b := Buffer{tc.format, rows, tc.cols}
		for _, l := range Layouts() {
			size, err := b.Size(l)
			if err != nil || len(tc.nan) != b.scaleBytes(l) {
				continue
			}
			from := Separate
			if l.Scales() {
				from = layoutOf(t, "row-major")
			}
			src := make([]byte, size)
			plain, err := b.Convert(src, from, l)
			if err != nil {
				t.Fatalf("%s in %s: %v", tc.format, l, err)
			}
			scales := b.scales(plain, from) // of Separate: a part of plain
			_, blocks := tc.format.ScaleShape(rows, tc.cols)
			copy(scales[(row*blocks+block)*len(tc.nan):], tc.nan)
			switch {
			case l.Scales():
				layout.Reorder(src, *l.order, scales, layout.RowMajor, rows, blocks)
			case l.blocks != nil:
				l.blocks.Interleave(src, plain[:len(plain)-len(scales)], scales)
			default:
				src = plain
			}
			want := fmt.Sprintf("layout: the scale of row %d, block %d, of %s is NaN: quantize the tensor again", row, block, l)
			if err := b.Check(src, l); err == nil || err.Error() != want {
				t.Errorf("%s in %s: got %v, want %s", tc.format, l, err, want)
			}
			if _, err := b.Convert(src, from, l); err == nil {
				t.Errorf("%s in %s: a NaN scale was converted", tc.format, l)
			}
			if found, _ := b.Find(src); found[0].Err != nil {
				t.Errorf("%s in %s: Find reports %v", tc.format, l, found[0].Err)
			}
		}
	}
}

func TestBufferErrors(t *testing.T) {
	swizzled := make([]byte, 512)
	swizzled[511] = 7
	for _, tc := range []struct {
		b        Buffer
		src      []byte
		to, from string
		want     string
	}{
		{Buffer{quant.BF16, 2, 32}, nil, "swizzled", "row-major", "layout: bf16 has no scales: use a block format such as mxfp8"},
		{Buffer{quant.MXFP8, 0, 32}, nil, "swizzled", "row-major", "layout: got 0×32, want at least one row and one column"},
		{Buffer{quant.MXFP8, 2, 64}, make([]byte, 5), "swizzled", "row-major", "layout: got 5 bytes, want 4 for 2×64 mxfp8 in row-major"},
		{Buffer{quant.MXFP8, 2, 64}, swizzled, "row-major", "cublas", "layout: padding of swizzled at byte 511 is 0x07, want 0"},
		{Buffer{quant.MXFP8, 2, 64}, make([]byte, 4), "block_mxfp4", "row-major",
			"layout: row-major and block_mxfp4 do not hold the same: one is of scales alone"},
		{Buffer{quant.MXFP8, 2, 64}, make([]byte, 132), "block_mxfp4", "separate", "layout: block_mxfp4 does not hold mxfp8: use it for mxfp4"},
		{Buffer{quant.NVFP4, 2, 48}, make([]byte, 54), "block_nvfp4", "separate",
			"layout: rows of 48 elements do not fill structs of block_nvfp4: want a multiple of 64"},
	} {
		// The error of a destination comes after the source was checked.
		_, err := tc.b.Convert(tc.src, layoutOf(t, tc.to), layoutOf(t, tc.from))
		if tc.to == "block_nvfp4" {
			_, err = tc.b.Size(layoutOf(t, tc.to))
		}
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s to %s: got %v, want %s", tc.from, tc.to, err, tc.want)
		}
	}
	for _, shape := range [][2]int{{math.MaxInt, 32}, {1, math.MaxInt}, {math.MaxInt / 4, 64}, {math.MaxInt/32 + 1, 32},
		{math.MaxInt / 64, 32}} {
		for _, f := range quant.Formats() {
			if !f.Scaled() {
				continue
			}
			want := fmt.Sprintf("layout: got %d×%d, want a shape whose bytes can be counted", shape[0], shape[1])
			for _, l := range Layouts() {
				if n, err := (Buffer{f, shape[0], shape[1]}).Size(l); err == nil || err.Error() != want {
					t.Errorf("%d×%d %s in %s: got %d bytes and %v, want %s", shape[0], shape[1], f, l, n, err, want)
				}
			}
		}
	}
	if _, err := Lookup("zzz"); err == nil || !strings.HasPrefix(err.Error(), `unknown layout "zzz": use one of row-major, `) {
		t.Errorf("got %v", err)
	}
}
