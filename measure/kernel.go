package measure

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A rowKernel adds blocks of 32 elements to the lanes, as addSingle does. It stops before a block
// that addSingle rejects. The kernel tables are in kernel_amd64.go and kernel_arm64.go, fastest first.
type rowKernel struct {
	needs cpu.Set
	bf16  bool // the wanted elements are BF16, otherwise float32
	sum   sumFunc
}

// A sumFunc is the function of a rowKernel.
type sumFunc func(want *byte, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) (done int)

func init() {
	cpu.AddTable("measure", &rowKernels, func(k *rowKernel) (string, cpu.Set) {
		if k.bf16 {
			return "sums of errors, BF16", k.needs
		}
		return "sums of errors", k.needs
	})
}

const (
	kernelBlock = 32  // elements of a block of a kernel
	kernelLimit = 16  // elements per limit of a kernel
	kernelCall  = 256 // maximum blocks of a call
)

// kernelBuffers holds the inputs and outputs of a kernel call besides the rows.
type kernelBuffers struct {
	ratios [kernelCall]float32
	limits [kernelCall * kernelBlock / kernelLimit]float32
}

// unlimited is a limit that nothing exceeds.
var unlimited = [1]float32{float32(math.Inf(1))}

// kernel returns the kernel that measures the row, or nil if none supports it.
func (a *Accumulator) kernel(r *Row) *rowKernel {
	if a.block != kernelBlock || len(r.Got) < kernelBlock || len(r.Limits) > 0 && r.Extent%kernelLimit != 0 {
		return nil
	}
	for i := range rowKernels {
		if k := &rowKernels[i]; cpu.Uses(k.needs) && k.bf16 == (len(r.WantBF16) > 0) {
			if a.buffer == nil {
				a.buffer = new(kernelBuffers)
			}
			return k
		}
	}
	return nil
}

// add measures whole blocks of the row from element i on and returns the number of elements.
func (k *rowKernel) add(a *Accumulator, r *Row, i int) int {
	base, size := unsafe.Pointer(unsafe.SliceData(r.Want)), 4
	if k.bf16 {
		base, size = unsafe.Pointer(unsafe.SliceData(r.WantBF16)), 2
	}
	ratios, begin := &a.buffer.ratios, i
	for len(r.Got)-i >= kernelBlock {
		n := min((len(r.Got)-i)/kernelBlock, kernelCall)
		limit, step, next := r.limits(a.buffer.limits[:n*kernelBlock/kernelLimit], i)
		done := k.sum((*byte)(unsafe.Add(base, i*size)), &r.Got[i], limit, step, next, n, &a.lanes, &ratios[0])
		a.endBlocks(ratios[:done])
		i += done * kernelBlock
		if done < n {
			break
		}
	}
	return i - begin
}

// limits returns the first limit of the elements from i on, and its distances in bytes to those
// of the second half of the block and, from there, of the next block. It copies the limits to
// buffer unless the kernel can read them in place.
func (r *Row) limits(buffer []float32, i int) (first *float32, step, next int) {
	switch {
	case len(r.Limits) == 0:
		return &unlimited[0], 0, 0
	case r.Extent == kernelLimit:
		return &r.Limits[i/kernelLimit], 4, 4
	case r.Extent == kernelBlock:
		return &r.Limits[i/kernelBlock], 0, 4
	}
	block, left := i/r.Extent, r.Extent-i%r.Extent
	for j := range buffer {
		buffer[j] = r.Limits[block]
		if left -= kernelLimit; left == 0 {
			block, left = block+1, r.Extent
		}
	}
	return &buffer[0], 4, 4
}
