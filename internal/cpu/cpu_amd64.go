//go:build !purego

package cpu

import "github.com/klauspost/cpuid/v2"

// x86 are the bits of the features that package cpuid detects, including whether the system saves
// their registers.
var x86 = map[Set]cpuid.FeatureID{
	X86AVX:        cpuid.AVX,
	X86AVX2:       cpuid.AVX2,
	X86FMA:        cpuid.FMA3,
	X86F16C:       cpuid.F16C,
	X86BMI2:       cpuid.BMI2,
	X86POPCNT:     cpuid.POPCNT,
	X86AVXVNNI:    cpuid.AVXVNNI,
	X86AVX512F:    cpuid.AVX512F,
	X86AVX512BW:   cpuid.AVX512BW,
	X86AVX512DQ:   cpuid.AVX512DQ,
	X86AVX512VL:   cpuid.AVX512VL,
	X86AVX512VNNI: cpuid.AVX512VNNI,
	X86AVX512VBMI: cpuid.AVX512VBMI,
	X86AVX512BF16: cpuid.AVX512BF16,
	X86AMXTile:    cpuid.AMXTILE,
	X86AMXBF16:    cpuid.AMXBF16,
}

// detect returns the features of this processor.
func detect() Set {
	var s Set
	for bit, id := range x86 {
		if cpuid.CPU.Supports(id) {
			s |= bit
		}
	}
	if !s.Has(X86AVX) { // F16C uses registers of AVX
		s &^= X86F16C
	}
	if tiles := X86AMXTile | X86AMXBF16; s&tiles != 0 && !permitTiles() {
		s &^= tiles
	}
	return s
}

// identity returns the processor's vendor and family.
func identity() (vendor string, family int) { return cpuid.CPU.VendorString, cpuid.CPU.Family }
