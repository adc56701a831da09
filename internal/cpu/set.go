package cpu

import (
	"math/bits"
	"strings"
)

// A Set is a set of processor features, one bit each.
type Set uint32

// The features that kernels need, of which the generator of assembly knows which instruction needs which.
const (
	X86AVX Set = 1 << iota
	X86AVX2
	X86FMA
	X86F16C
	X86BMI2
	X86POPCNT
	X86AVXVNNI
	X86AVX512F
	X86AVX512BW
	X86AVX512DQ
	X86AVX512VL
	X86AVX512VNNI
	X86AVX512VBMI
	X86AVX512BF16
	X86AMXTile
	X86AMXBF16
	ARMASIMD
	ARMDotProd
	ARMBF16
	ARMI8MM
)

// features names the bits in their order: the constant, and the flag in Linux's /proc/cpuinfo.
var features = [...]struct{ constant, flag string }{
	{"X86AVX", "avx"},
	{"X86AVX2", "avx2"},
	{"X86FMA", "fma"},
	{"X86F16C", "f16c"},
	{"X86BMI2", "bmi2"},
	{"X86POPCNT", "popcnt"},
	{"X86AVXVNNI", "avx_vnni"},
	{"X86AVX512F", "avx512f"},
	{"X86AVX512BW", "avx512bw"},
	{"X86AVX512DQ", "avx512dq"},
	{"X86AVX512VL", "avx512vl"},
	{"X86AVX512VNNI", "avx512_vnni"},
	{"X86AVX512VBMI", "avx512vbmi"},
	{"X86AVX512BF16", "avx512_bf16"},
	{"X86AMXTile", "amx_tile"},
	{"X86AMXBF16", "amx_bf16"},
	{"ARMASIMD", "asimd"},
	{"ARMDotProd", "asimddp"},
	{"ARMBF16", "bf16"},
	{"ARMI8MM", "i8mm"},
}

// AllFeatures returns every feature.
func AllFeatures() Set { return 1<<len(features) - 1 }

// Features returns the features of s, one in each Set.
func (s Set) Features() []Set {
	var list []Set
	for ; s != 0; s &= s - 1 {
		list = append(list, s&-s)
	}
	return list
}

// join returns the names of the features of s.
func (s Set) join(separator string, name func(i int) string) string {
	var names []string
	for _, f := range s.Features() {
		names = append(names, name(bits.TrailingZeros32(uint32(f))))
	}
	return strings.Join(names, separator)
}

// String returns Linux's names of the features, separated by spaces.
func (s Set) String() string { return s.join(" ", func(i int) string { return features[i].flag }) }

// GoString returns an expression in Go.
func (s Set) GoString() string {
	if s == 0 {
		return "cpu.Set(0)"
	}
	return s.join(" | ", func(i int) string { return "cpu." + features[i].constant })
}

// Has reports whether s includes all features of needs.
func (s Set) Has(needs Set) bool { return needs&^s == 0 }
