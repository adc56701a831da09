package cpu

import "slices"

// A Part describes the relative speed of instructions on a kind of processor, which CPUID's
// features do not report; kernels are ordered and tuned by it. Parts are found by vendor, family and
// features, never by timing, so that the choice is deterministic.
type Part struct {
	Name     string
	vendor   string // as in CPUID leaf 0; "" for any
	families []int  // as in CPUID leaf 1, extended family included; nil for all
	has      Set    // that distinguish it from the rows below

	rates map[string]float64
}

// Rate returns the operations that an instruction does in a cycle, by its name and registers, such as
// "VFMADD231PS zmm"; the usual ones if the row has none, and 0 of an unknown instruction.
func (p Part) Rate(instruction string) float64 {
	if r, ok := p.rates[instruction]; ok {
		return r
	}
	return usual[instruction]
}

// usual are rates of a processor with one port of each width. Those of arm64 are assumed: two ports of FMLA,
// each of which does BFMMLA and SMMLA.
var usual = map[string]float64{fma256: 32, fma512: 32, bf16512: 64, int8512: 128, bf16AMX: 1024, fmaNEON: 16, bf16NEON: 64, int8NEON: 128}

const (
	fma256  = "VFMADD231PS ymm"
	fma512  = "VFMADD231PS zmm"
	bf16512 = "VDPBF16PS zmm"
	int8512 = "VPDPBUSD zmm"
	bf16AMX = "TDPBF16PS tmm"

	fmaNEON  = "FMLA v.4s"
	bf16NEON = "BFMMLA v.4s"
	int8NEON = "SMMLA v.4s"
)

// parts has a row for each kind of processor. The first match counts. Rates of the first two rows and of Cascade
// Lake were measured by "bench limits", on Zen 4 and Zen 5 (which does twice as much of each), Sapphire Rapids and
// Cascade Lake.
var parts = []Part{
	{Name: "AMD Zen 4, Zen 5", vendor: "AuthenticAMD", families: []int{25, 26}, has: X86AVX512BF16},
	{Name: "Intel with AVX512_BF16", vendor: "GenuineIntel", families: []int{6, 19}, has: X86AVX512BF16,
		rates: map[string]float64{fma512: 64, bf16512: 64, int8512: 256}},
	{Name: "Intel with AVX-512", vendor: "GenuineIntel", families: []int{6}, has: X86AVX512F,
		rates: map[string]float64{fma512: 64, int8512: 256}},
	{Name: "AMD or Intel with AVX2", families: []int{6, 23, 24, 25, 26}, has: X86AVX2},
	{Name: "unknown"},
}

// findPart returns the row of a processor.
func findPart(vendor string, family int, features Set) Part {
	for _, p := range parts {
		if (p.vendor == "" || p.vendor == vendor) && (p.families == nil || slices.Contains(p.families, family)) && features.Has(p.has) {
			return p
		}
	}
	panic("cpu: the last row of parts must match every processor")
}

// Parts returns the rows of the table.
func Parts() []Part { return slices.Clone(parts) }

// This returns the Part of this processor.
func This() Part {
	vendor, family := identity()
	return findPart(vendor, family, detected)
}
