package bench

import (
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// TestDRAMRows checks that default matrices have whole blocks, come from DRAM and are within
// the limits.
func TestDRAMRows(t *testing.T) {
	for _, f := range quant.Formats() {
		if blockRows%max(f.Block.Rows, f.Block.Cols, 1) != 0 {
			t.Errorf("%s: got partial blocks in %d rows", f, blockRows)
		}
	}
	for _, source := range []*format.Scalar{format.F32, format.BF16} {
		for _, cols := range []int{1, 7, 8192, 8193, 1 << 19, MaxSize} {
			rows := DRAMRows(cols, source)
			if rows%blockRows != 0 || rows > MaxSize || CheckMatrix(rows, cols) != nil {
				t.Errorf("%d columns: got %d rows", cols, rows)
			}
			if rows < MaxSize && rows*cols*source.Bits()/8 < DRAMBytes {
				t.Errorf("%d rows of %d %s: got less than %d bytes", rows, cols, source, DRAMBytes)
			}
		}
	}
}
