package measure

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A rowKernel adds blocks of 32 elements to the lanes, and stops before one that
// holds NaN or Inf. The rows are in the table of this file's amd64 twin.
type rowKernel struct {
	tier cpu.Tier
	bf16 bool // the wanted elements are BF16, else float32
	sum  func(want *byte, got, limits *float32, step, blocks int, l *lanes, totals *float64) (done int)
}

const (
	kernelBlock = 32 // elements of a block of a kernel
	kernelLimit = 16 // elements that one of its limits serves
	kernelCall  = 64 // the most blocks of a call
)

// kernelRoom is what the calls of a kernel read and write beside the rows.
type kernelRoom struct {
	totals [2 * kernelCall]float64
	limits [kernelCall * kernelBlock / kernelLimit]float32
}

// unlimited is a limit that nothing exceeds.
var unlimited = [1]float32{float32(math.Inf(1))}

// kernel returns a function that measures elements of the row from i on, and
// returns how many it did: whole blocks, and none where no kernel serves.
func (a *Accumulator) kernel(r Row) func(i int) int {
	none := func(int) int { return 0 }
	limited := len(r.Limits) > 0
	if a.block != kernelBlock || len(r.Got) < kernelBlock || limited && r.Extent%kernelLimit != 0 {
		return none
	}
	for _, k := range rowKernels {
		if k.tier > cpu.Best() || k.bf16 != (r.WantBF16 != nil) {
			continue
		}
		base, size := unsafe.Pointer(unsafe.SliceData(r.Want)), 4
		if k.bf16 {
			base, size = unsafe.Pointer(unsafe.SliceData(r.WantBF16)), 2
		}
		if a.room == nil {
			a.room = new(kernelRoom)
		}
		totals, limits := &a.room.totals, &a.room.limits
		return func(i int) int {
			begin := i
			for len(r.Got)-i >= kernelBlock {
				n := min((len(r.Got)-i)/kernelBlock, kernelCall)
				limit, step := &unlimited[0], 0
				if limited {
					for j := range n * kernelBlock / kernelLimit {
						limits[j] = r.Limits[(i+j*kernelLimit)/r.Extent]
					}
					limit, step = &limits[0], 4
				}
				done := k.sum((*byte)(unsafe.Add(base, i*size)), &r.Got[i], limit, step, n, &a.lanes, &totals[0])
				for j := range done {
					a.endBlock(totals[2*j], totals[2*j+1])
				}
				i += done * kernelBlock
				if done < n {
					break
				}
			}
			return i - begin
		}
	}
	return none
}
