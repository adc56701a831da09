package bench

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// TestAllocationsOfCopies checks that the weights of Gemv take about 256 MB in memory, independent of their
// size.
func TestAllocationsOfCopies(t *testing.T) {
	slow.Race(t, slow.Allocations)
	team, err := NewTeam(1)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	for _, tc := range []struct {
		format     quant.Format
		rows, cols int
	}{{quant.F32, 1, 1}, {quant.NVFP4, 1, 16}, {quant.MXFP8, 16, 64}, {quant.FP8Row, 30, 50}, {quant.NVFP4, 512, 512}} {
		first, err := team.quantized(tc.format, tc.rows, tc.cols)
		if err != nil {
			t.Fatal(err)
		}
		const some = 100
		var before, after runtime.MemStats
		kept := make([]*quant.Tensor, some)
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i] = clone(first)
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		each := float64(after.TotalAlloc-before.TotalAlloc)/some + float64(unsafe.Sizeof(first))
		n := copies(len(first.Codes) + len(first.ScaleBytes()))
		if share := float64(n) * each / weightBytes; share < 0.9 || share > 1.1 {
			t.Errorf("%s %d×%d: got %d weights of %.0f bytes, which take %.2f of %d bytes", tc.format, tc.rows, tc.cols, n, each, share, weightBytes)
		}
	}
	for bytes, want := range map[int]int{weightBytes: 1, 2 * weightBytes: 1, weightBytes / 2: 2} {
		if got := copies(bytes); got != want {
			t.Errorf("got %d weights of %d bytes, want %d", got, bytes, want)
		}
	}
}
