//go:build (amd64 || arm64) && !purego

package tensor

import "github.com/microscale-go/microscale/internal/cpu"

const bf16Size = 2 // bytes

// units returns the kernel of functions that convert whole units, and return the number of elements
// done.
func units(needs cpu.Set, widen func(dst *float32, src *byte, n int) int, narrow func(dst *byte, src *float32, n int) int) bf16Kernel {
	return bf16Kernel{
		needs,
		func(dst []float32, src []byte) {
			done := widen(&dst[0], &src[0], len(dst))
			widenPlain(dst[done:], src[bf16Size*done:])
		},
		func(dst []byte, src []float32) {
			done := narrow(&dst[0], &src[0], len(src))
			narrowPlain(dst[bf16Size*done:], src[done:])
		},
	}
}
