// Package cpu reports the instruction tiers that this processor can run, and selects the
// one that kernels use.
//
//	plain    portable Go; on every architecture, and with the build tag purego
//	neon     Advanced SIMD, on arm64
//	avx2     AVX2, FMA, F16C
//	avx512   AVX-512 F, BW, VL, DQ, VBMI, VNNI, BF16, and GFNI
//	amx      AMX tiles and their BF16 products, if the system permits them; for matrix
//	         products only: all else uses avx512
//
// A tier includes those before it in this list that the architecture has. Each row of a kernel table names the tier
// that it needs; callers use the best row that Best allows.
package cpu

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/naming"
)

// A Tier is an instruction set that kernels target. A greater value is faster.
type Tier uint8

const (
	Plain  Tier = iota // portable Go
	NEON               // 128-bit vectors with fused multiply-add, on arm64
	AVX2               // 256-bit vectors with fused multiply-add
	AVX512             // 512-bit vectors with byte permutes, int8 and BF16 dot products
	AMX                // tiles of 16 rows of 64 bytes, and their products
)

var names = [...]string{Plain: "plain", NEON: "neon", AVX2: "avx2", AVX512: "avx512", AMX: "amx"}

// String returns the name used on the command line.
func (t Tier) String() string { return names[t] }

// Vectors returns the tier of the vector kernels under t: t itself, or AVX512 for AMX, whose
// tiles support only matrix products.
func (t Tier) Vectors() Tier { return min(t, AVX512) }

// ParseTier returns the tier of the given name, whether or not this processor supports it.
func ParseTier(name string) (Tier, error) {
	for t, n := range names {
		if strings.EqualFold(n, name) {
			return Tier(t), nil
		}
	}
	return 0, naming.Unknown("kernel tier", name, names[:])
}

// A requirement is a tier and whether the processor has its instructions.
type requirement struct {
	tier Tier
	met  bool
}

// available lists the tiers of this processor, best first.
var available = func() []Tier {
	list := []Tier{Plain}
	for _, r := range requirements() {
		if !r.met {
			break // a tier includes those below it
		}
		list = append([]Tier{r.tier}, list...)
	}
	return list
}()

var current atomic.Uint32 // the Tier that Best returns

func init() { current.Store(uint32(available[0])) }

// Tiers returns the tiers that this processor can run, best first. The last is Plain.
func Tiers() []Tier { return append([]Tier(nil), available...) }

// Has reports whether this processor can run t.
func Has(t Tier) bool { return slices.Contains(available, t) }

// Best returns the tier that kernels use: the best available one, or that of Force.
func Best() Tier { return Tier(current.Load()) }

// Force sets the tier that Best returns, for the whole process. It is the only way to choose a
// tier; the command's flag --kernel and tests call it. Force returns an error if the processor
// or the build does not support t.
func Force(t Tier) error {
	have := make([]string, len(available))
	for i, a := range available {
		have[i] = a.String()
		if a == t {
			current.Store(uint32(t))
			return nil
		}
	}
	who := "processor"
	if requirements() == nil {
		who = "build"
	}
	return fmt.Errorf("this %s does not support the kernel tier %s: it supports %s", who, t, strings.Join(have, ", "))
}
