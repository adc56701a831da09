package bench

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// Largest sizes that are measured: of a dimension, and of a matrix (1.07 GB of float32,
// 16384 × 16384). Several matrices are in memory at a time.
const (
	MaxSize     = 1 << 20
	MaxElements = 1 << 28
)

// DRAMBytes is more than caches hold.
const DRAMBytes = 256_000_000

// blockRows is the number of rows of the largest block. A matrix with a multiple of it has no
// partial blocks.
const blockRows = 128

// DRAMRows returns the number of rows of the given length that come from DRAM.
func DRAMRows(cols int, source *format.Scalar) int {
	bytes := cols * source.Bits() / 8
	return min(roundUp((DRAMBytes+bytes-1)/bytes, blockRows), MaxSize)
}

// CheckMatrix returns an error if a matrix has more than MaxElements elements.
func CheckMatrix(rows, cols int) error {
	if rows*cols > MaxElements {
		return fmt.Errorf("matrix of %d×%d: got %d elements, want at most %d", rows, cols, rows*cols, MaxElements)
	}
	return nil
}
