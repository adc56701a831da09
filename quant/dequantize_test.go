package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/tensor"
)

// TestDequantizeStreams checks that results large enough for non-temporal stores have the bits
// of the Go twin, at any address, and that nothing beyond them is written.
func TestDequantizeStreams(t *testing.T) {
	for _, cols := range []int{1024, 1027, 1040} {
		rows := ceilDiv(streamBytes, 4*cols)
		x := benchMatrix(rows, cols)
		raw := guard.Bytes(t, 4*rows*cols, guard.End)
		for _, f := range []Format{MXFP8, NVFP4, FP8Row} {
			q := mustQuantize(t, Quantizer{Format: f}, x, Rowwise, With{})
			var want tensor.Dense
			plainly(t, func() { want = q.Dequantize(1) })
			cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
				clear(raw)
				got := tensor.Of(rows, cols, unsafe.Slice((*float32)(unsafe.Pointer(&raw[0])), rows*cols))
				t.Run(fmt.Sprintf("format=%s/cols=%d", f, cols), func(t *testing.T) {
					q.DequantizeRows(got, 0, 2)
					requireBits(t, got, want)
				})
			})
		}
	}
}

// TestGlobalAbsent checks that Global has no effect in formats without a global scale.
func TestGlobalAbsent(t *testing.T) {
	x := benchMatrix(128, 128)
	for _, f := range Formats() {
		if f.Global {
			continue
		}
		q, err := Quantizer{Format: f}.Rowwise(x, With{})
		if err != nil {
			t.Fatal(err)
		}
		want, scale := q.Dequantize(1), q.Scale(1, 1)
		for _, global := range []float32{0, 2, -1, float32(math.NaN())} {
			q.Global = global
			if got := q.Dequantize(1); !slices.Equal(got.Data, want.Data) || q.Scale(1, 1) != scale {
				t.Errorf("%s: Global = %g changes its values", f, global)
			}
		}
	}
}

// TestPlainRowDecoder decodes rows of more codes than are split together, and compares each element
// with its code and scale.
func TestPlainRowDecoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	unaligned := MXFP8 // blocks end elsewhere than what is split together
	unaligned.Block.Cols = 96
	for _, f := range append(Formats(), unaligned) {
		if !f.Scaled() {
			continue
		}
		x := newTensor(f, Rowwise, 2, 2500)
		for i := range x.Codes {
			x.Codes[i] = byte(r.Uint32())
		}
		for i := range x.Scales {
			x.Scales[i] = byte(r.Uint32())
		}
		for i := range x.Scales32 {
			x.Scales32[i] = r.Float32()
		}
		codes, scales := make([]byte, x.paddedCols()), make([]float32, x.scaleCols())
		f.Element.Split(codes, x.row(1))
		x.fillScales(scales, 1, x.extent())
		got, want := make([]float32, x.Cols()), make([]float32, 1)
		x.plainRowDecoder()(got, 1)
		for i, v := range got {
			f.Element.DecodeSliceScaled(want, codes[i:i+1], scales[i/x.extent()])
			if math.Float32bits(v) != math.Float32bits(want[0]) {
				t.Fatalf("%s: element %d: got %v, want %v", f, i, v, want[0])
			}
		}
	}
}
