// Package cpu reports the instructions that this processor can run, and selects those that kernels
// use. Each row of a kernel table names the features that its instructions need, as the generator of
// assembly found them; callers use the best row that Uses allows.
//
// A tier is a named set of features, that of a generation of processors. It restricts kernels to those
// features:
//
//	plain       portable Go; on every architecture, and with the build tag purego
//	neon        Advanced SIMD, on arm64
//	neondot     neon and int8 dot products: Apple M1, Graviton2, Cortex-A76 (Raspberry Pi 5), Snapdragon
//	            855, and later ones
//	neonbf16    neondot and BF16 dot products, on Linux, macOS and Windows
//	neoni8mm    neonbf16 and products of int8 matrices: Apple M2, Graviton3, Neoverse V1 and N2, and
//	            Snapdragon X
//	avx2        AVX2, FMA, F16C, BMI2, POPCNT: Haswell, Zen, and all later ones
//	avxvnni     avx2 and int8 dot products of 256-bit vectors: Alder Lake
//	avx512f     avx2 and AVX-512 F, BW, DQ, VL: Skylake-X
//	avx512vnni  avx512f and int8 dot products: Cascade Lake
//	avx512vbmi  avx512vnni and byte permutes: Ice Lake, Tiger Lake
//	avx512      avx512vbmi and BF16 dot products: Zen 4, Zen 5, Sapphire Rapids
//	amx         avx512 and AMX tiles with BF16 products, if the system permits them; for matrix
//	            products only
package cpu

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/naming"
)

// A Tier is a named set of features. A greater value is a later generation, or a wider one.
type Tier uint8

const (
	Plain Tier = iota
	NEON
	NEONDot
	NEONBF16
	NEONI8MM
	AVX2
	AVXVNNI
	AVX512F
	AVX512VNNI
	AVX512VBMI
	AVX512
	AMX
)

const (
	avx2       = X86AVX | X86AVX2 | X86FMA | X86F16C | X86BMI2 | X86POPCNT
	avx512f    = avx2 | X86AVX512F | X86AVX512BW | X86AVX512DQ | X86AVX512VL
	avx512vnni = avx512f | X86AVX512VNNI
	avx512vbmi = avx512vnni | X86AVX512VBMI
	avx512     = avx512vbmi | X86AVX512BF16
)

var tiers = [...]struct {
	name string
	set  Set
}{
	Plain:      {"plain", 0},
	NEON:       {"neon", ARMASIMD},
	NEONDot:    {"neondot", ARMASIMD | ARMDotProd},
	NEONBF16:   {"neonbf16", ARMASIMD | ARMDotProd | ARMBF16},
	NEONI8MM:   {"neoni8mm", ARMASIMD | ARMDotProd | ARMBF16 | ARMI8MM},
	AVX2:       {"avx2", avx2},
	AVXVNNI:    {"avxvnni", avx2 | X86AVXVNNI},
	AVX512F:    {"avx512f", avx512f},
	AVX512VNNI: {"avx512vnni", avx512vnni},
	AVX512VBMI: {"avx512vbmi", avx512vbmi},
	AVX512:     {"avx512", avx512},
	AMX:        {"amx", avx512 | X86AMXTile | X86AMXBF16},
}

// String returns the name used on the command line.
func (t Tier) String() string { return tiers[t].name }

// Set returns the features of t.
func (t Tier) Set() Set { return tiers[t].set }

// Vectors returns the tier of the vector kernels under t: t itself, or AVX512 for AMX, whose
// tiles support only matrix products.
func (t Tier) Vectors() Tier { return min(t, AVX512) }

// TierOf returns the first tier that has all features of needs. It panics if none has: then the table of
// tiers lacks one.
func TierOf(needs Set) Tier {
	for t := range tiers {
		if tiers[t].set.Has(needs) {
			return Tier(t)
		}
	}
	panic("cpu: no tier has " + needs.String())
}

// AllTiers returns the tiers of all processors, in ascending order.
func AllTiers() []Tier {
	list := make([]Tier, len(tiers))
	for t := range list {
		list[t] = Tier(t)
	}
	return list
}

// ParseTier returns the tier of the given name, whether or not this processor supports it.
func ParseTier(name string) (Tier, error) {
	names := make([]string, len(tiers))
	for t := range tiers {
		if names[t] = tiers[t].name; strings.EqualFold(names[t], name) {
			return Tier(t), nil
		}
	}
	return 0, naming.Unknown("kernel tier", name, names)
}

// detected are the features of this processor.
var detected = detect()

// available lists the tiers of this processor, best first.
var available = tiersOf(detected)

func tiersOf(s Set) []Tier {
	var list []Tier
	for t := range tiers {
		if s.Has(tiers[t].set) {
			list = append(list, Tier(t))
		}
	}
	slices.Reverse(list)
	return list
}

var (
	current atomic.Uint32 // the Tier that Best returns
	mask    atomic.Uint32 // the Set that Uses allows
)

func init() {
	current.Store(uint32(available[0]))
	mask.Store(uint32(detected))
}

// Detected returns the features of this processor that this build can use.
func Detected() Set { return detected }

// Tiers returns the tiers that this processor can run, best first. The last is Plain.
func Tiers() []Tier { return slices.Clone(available) }

// Has reports whether this processor has all features of needs.
func Has(needs Set) bool { return detected.Has(needs) }

// Uses reports whether kernels that need these features may run: whether this processor has them, and
// the tier of Force, too.
func Uses(needs Set) bool { return Set(mask.Load()).Has(needs) }

// Best returns the tier that kernels use: the best available one, or that of Force.
func Best() Tier { return Tier(current.Load()) }

// Force restricts kernels to the features of t, for the whole process. The best available tier is no
// restriction. It is the only way to choose a tier; the command's flag --kernel and tests call it.
// Force returns an error if the processor or the build does not support t.
func Force(t Tier) error {
	if !slices.Contains(available, t) {
		who := "processor"
		if len(available) == 1 {
			who = "build"
		}
		names := make([]string, len(available))
		for i, a := range available {
			names[i] = a.String()
		}
		return fmt.Errorf("this %s does not support the kernel tier %s: it supports %s", who, t, strings.Join(names, ", "))
	}
	allowed := t.Set()
	if t == available[0] {
		allowed = detected
	}
	current.Store(uint32(t))
	mask.Store(uint32(allowed))
	return nil
}
