package quant

import (
	"testing"
	"unsafe"
)

// TestCutsLayout checks the layout of globalCuts that internal/asm/quantavx2global.go has as constants.
func TestCutsLayout(t *testing.T) {
	const firstRow, cutBytes, cutRowShift = 64, 32, 7
	var g globalCuts
	if got := unsafe.Offsetof(g.rows); got != firstRow {
		t.Errorf("rows begin at byte %d, want %d", got, firstRow)
	}
	if got := unsafe.Sizeof(g.rows[0][0]); got != cutBytes {
		t.Errorf("a cut has %d bytes, want %d", got, cutBytes)
	}
	if got := unsafe.Sizeof(g.rows[0]); got != 1<<cutRowShift {
		t.Errorf("a row has %d bytes, want %d", got, 1<<cutRowShift)
	}
}
