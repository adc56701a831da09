//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// requirements returns the tiers above Plain in rising order.
func requirements() []requirement {
	x := cpu.X86
	return []requirement{
		{AVX2, x.HasAVX2 && x.HasFMA},
		{AVX512, x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
			x.HasAVX512VBMI && x.HasAVX512VNNI && x.HasAVX512BF16 && x.HasAVX512GFNI},
	}
}
