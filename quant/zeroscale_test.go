package quant

import (
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/tensor"
)

// TestZeroScale: in every tier, and in both directions, a block of zeros has the scale
// that the quantizer asks for, beside blocks that are not zero.
func TestZeroScale(t *testing.T) {
	const rows, cols = 64, 1024
	x := tensor.New(rows, cols)
	for i := range rows {
		for j := range cols / 2 { // the other half is zeros
			x.Set(i, j, 1)
		}
	}
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range []Format{MXFP8, MXFP6E2M3, MXFP4, MXINT8} {
			for zero, want := range map[bool]byte{false: 0, true: 127} {
				q := Quantizer{Format: f, UnitZeroScale: zero}
				row, err := q.Rowwise(x, With{})
				if err != nil {
					t.Fatal(err)
				}
				if got := row.Scales[cols/32-1]; got != want {
					t.Errorf("format=%s/unit=%t: the rowwise scale of zeros is %d, want %d", f, zero, got, want)
				}
				col, err := q.Columnwise(x, With{})
				if err != nil {
					t.Fatal(err)
				}
				if got := col.Scales[len(col.Scales)-1]; got != want {
					t.Errorf("format=%s/unit=%t: the columnwise scale of zeros is %d, want %d", f, zero, got, want)
				}
			}
		}
	})
}
