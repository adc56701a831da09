package tensor

import "github.com/microscale-go/microscale/internal/cpu"

// A bf16Kernel converts slices of at least one element between float32 and the bytes of BF16,
// with the bits of widenPlain and narrowPlain. The kernel tables are in kernel_amd64.go and
// kernel_arm64.go, fastest first.
type bf16Kernel struct {
	needs  cpu.Set
	widen  func(dst []float32, src []byte)
	narrow func(dst []byte, src []float32)
}

func init() {
	cpu.AddTable("tensor", &bf16Kernels, func(k *bf16Kernel) (string, cpu.Set) { return "float32 to BF16 and back", k.needs })
}

// bf16KernelOf returns the kernel for n elements, or nil if there is none.
func bf16KernelOf(n int) *bf16Kernel {
	for i := range bf16Kernels {
		if k := &bf16Kernels[i]; cpu.Uses(k.needs) && n > 0 {
			return k
		}
	}
	return nil
}
