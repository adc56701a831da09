package quant

import (
	"fmt"
	"math"
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
			if err := cpu.Force(cpu.Plain); err != nil {
				t.Fatal(err)
			}
			want := q.Dequantize(1)
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
