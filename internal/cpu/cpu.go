// Package cpu says which instruction tiers this processor can run, and which of
// them the kernels use.
//
//	plain    Go alone; on every architecture, and with the build tag purego
//	avx2     AVX2, FMA, F16C
//	avx512   AVX-512 F, BW, VL, DQ, VBMI, VNNI, BF16, and GFNI
//	amx      AMX tiles and their BF16 products, where the system lets a process use them;
//	         for matrix products alone: all else runs as in avx512
//
// A tier includes the ones above it in this list. Kernels are rows of tables
// that name the tier they need; a caller takes the best row that Best allows.
package cpu

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// A Tier is a set of instructions that kernels are written for. Greater is faster.
type Tier uint8

const (
	Plain  Tier = iota // Go alone
	AVX2               // 256-bit vectors with fused multiply-add
	AVX512             // 512-bit vectors with byte permutes, int8 and BF16 dot products
	AMX                // tiles of 16 lines of 64 bytes, and products of two of them
)

var names = [...]string{Plain: "plain", AVX2: "avx2", AVX512: "avx512", AMX: "amx"}

// String returns the name used on the command line.
func (t Tier) String() string { return names[t] }

// Vectors returns the tier of the kernels under t that work on vectors: t itself, but
// for AMX, whose tiles serve matrix products alone.
func (t Tier) Vectors() Tier { return min(t, AVX512) }

// ParseTier finds a tier by its name. Whether this processor has it, Force says.
func ParseTier(name string) (Tier, error) {
	for t, n := range names {
		if strings.EqualFold(n, name) {
			return Tier(t), nil
		}
	}
	return 0, fmt.Errorf("unknown kernel tier %q: use one of %s", name, strings.Join(names[:], ", "))
}

// A requirement is one tier and whether the processor has what it needs.
type requirement struct {
	tier Tier
	met  bool
}

// available holds the tiers of this processor, best first.
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

// Tiers returns the tiers that this processor can run, best first. The last is
// Plain.
func Tiers() []Tier { return append([]Tier(nil), available...) }

// Has reports whether this processor can run t.
func Has(t Tier) bool { return t <= available[0] }

// Best returns the tier that kernels are chosen by: the best available one,
// unless Force set another.
func Best() Tier { return Tier(current.Load()) }

// Force makes Best return t from now on, for the whole process. It is the one
// way to choose a tier; the command's flag --kernel and the tests call it. It
// fails where the processor cannot run t, or the build has nothing for any.
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
	return fmt.Errorf("this %s cannot run the kernel tier %s: it has %s", who, t, strings.Join(have, ", "))
}
