package comm_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestWireSizes checks what formats cost on the way, in bits per value.
func TestWireSizes(t *testing.T) {
	want := map[string]float64{"f32": 32, "bf16": 16, "mxfp8": 8.25, "nvfp4": 4.5, "fp8-vec128": 8.25}
	for _, w := range commtest.Wires() {
		const n = 1 << 20
		size := w.Size(n)
		if w.String() == "nvfp4" {
			size -= 4 // the global scale
		}
		if got := float64(size) * 8 / n; got != want[w.String()] {
			t.Errorf("%s: %g bits per value, want %g", w, got, want[w.String()])
		}
	}
}

// TestQuantizedRejects lists formats that cannot travel.
func TestQuantizedRejects(t *testing.T) {
	for _, f := range []quant.Format{quant.FP8Tensor, quant.FP8Row, quant.FP8Block, quant.BF16} {
		if _, err := comm.Quantized(quant.Quantizer{Format: f}); err == nil {
			t.Errorf("%s: no error", f)
		}
	}
}

// TestQuantizedRows compares messages with the codes and scales of a single row.
func TestQuantizedRows(t *testing.T) {
	for _, f := range []quant.Format{quant.MXFP8, quant.FP8Vec128, quant.NVFP4} {
		q := quant.Quantizer{Format: f}
		wire, err := comm.Quantized(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 100, 384, 1280, 8192, 3 * 4096, 3*4096 + 128} {
			src := make([]float32, n)
			for i := range src {
				src[i] = float32(i%97-48) * float32(1+i/50)
			}
			data := make([]byte, wire.Size(n))
			wire.Encode(data, src)
			row, err := q.Rowwise(tensor.Of(1, n, src), quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Concat(row.Codes, row.ScaleBytes())
			if f.Global {
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(row.Global))
			}
			got := make([]float32, n)
			wire.Decode(got, data)
			if !bytes.Equal(data, want) || !slices.Equal(got, row.Dequantize(1).Data) {
				t.Errorf("%s: %d values differ from those of a single row", f, n)
			}
		}
	}
}
