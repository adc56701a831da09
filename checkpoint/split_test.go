package checkpoint

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestViewOfRows: every step-th row of a quantized weight has the codes, scales and global scale of the
// weight, and so its values.
func TestViewOfRows(t *testing.T) {
	const rows, cols, global = 8, 64, 0.25
	for _, f := range []quant.Format{quant.NVFP4, quant.MXFP4} {
		var specs []safetensors.Spec
		for _, s := range compressedTensors.Stored(f, "model.layers.0.mlp.down_proj.weight", []int64{rows, cols}) {
			specs = append(specs, s.Spec)
		}
		random := rand.New(rand.NewPCG(1, 2))
		m := readFilled(t, specs, f, func(name string, data []byte) {
			switch {
			case strings.HasSuffix(name, "global_scale"):
				copy(data, GlobalBytes(1/global))
			case strings.HasSuffix(name, "shape"):
			default:
				for i := range data {
					data[i] = byte(random.IntN(120))
				}
			}
		})
		w, ok := m.Lookup("model.layers.0.mlp.down_proj.weight")
		if !ok || f.Global && w.Global != global {
			t.Fatalf("%s: weight %+v of %v", f, w, m.Problems)
		}
		want, err := w.ReadTile(Tile{To: rows, ToCol: cols})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []view{{of: w, first: 0, step: 1}, {of: w, first: 0, step: 2}, {of: w, first: 1, step: 2}, {of: w, first: 2, step: 3}} {
			n := (rows - v.first + v.step - 1) / v.step
			q, err := quant.NewTensor(f, n, cols)
			if err != nil {
				t.Fatal(err)
			}
			q.Global = 77
			if err := v.readInto(q, Tile{To: n, ToCol: cols}); err != nil {
				t.Fatal(err)
			}
			for i, got := 0, q.Dequantize(1); i < n; i++ {
				if !slices.Equal(got.Row(i), want.Row(v.first+i*v.step)) {
					t.Errorf("%s: row %d of every %d from %d: got\n%v\nwant\n%v", f, i, v.step, v.first, got.Row(i), want.Row(v.first+i*v.step))
				}
			}
		}
	}
}
