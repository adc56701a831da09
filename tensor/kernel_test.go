package tensor

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
)

// TestBF16Kernels checks that every kernel gives the bits of widenPlain and narrowPlain, on
// slices of all lengths that end at an inaccessible page.
func TestBF16Kernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	edges := []uint32{0, 1 << 31, 0x7f800000, 0xff800000, 0x7f800001, 0xffc12345, 0x7fffffff, 0x7f7fffff, 0x7f7f8000, 0x3f808000, 0x3f818000,
		0x3f80ffff, 1, 0x8000, 0x8001, 0x80008000}
	for _, n := range []int{0, 1, 7, 15, 16, 17, 31, 63, 64, 65, 127, 1029} {
		raw := guard.Bytes(t, 4*n, guard.End)
		x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), n)
		for i := range x {
			bits := rng.Uint32()
			if rng.IntN(2) == 0 {
				bits = edges[rng.IntN(len(edges))]
			}
			x[i] = math.Float32frombits(bits)
		}
		narrowed, widened := make([]byte, 2*n), make([]float32, n)
		narrowPlain(narrowed, x)
		widenPlain(widened, narrowed)
		source := guard.Bytes(t, 2*n, guard.End)
		copy(source, narrowed)
		small, large := guard.Bytes(t, 2*n, guard.End), guard.Bytes(t, 4*n, guard.End)
		back := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(large))), n)
		cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
			clear(small)
			clear(large)
			if err := ToBytes(small, x, format.BF16); err != nil || !bytes.Equal(small, narrowed) {
				t.Errorf("%d narrowed: got %x, want %x (%v)", n, small, narrowed, err)
			}
			same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			if err := FromBytes(back, source, format.BF16); err != nil || !slices.EqualFunc(back, widened, same) {
				t.Errorf("%d widened: got %v, want %v (%v)", n, back, widened, err)
			}
		})
	}
}
