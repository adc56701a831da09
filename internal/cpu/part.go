package cpu

// A Part is what kernels are ordered by that CPUID's features do not tell: how fast
// a processor runs instructions that it has. It is found by vendor and family and
// never by timing, so that a machine always chooses the same.
type Part struct {
	Name     string
	vendor   string // as CPUID's leaf 0 spells it; "" for any
	families []int  // as CPUID's leaf 1 numbers them, extended family included; nil for all

	BF16Rate float64 // of VDPBF16PS, in instructions, where VFMADD231PS's is 1: each does twice the work
}

// parts has a row for each kind of processor with AVX512_BF16. The first that fits
// counts.
var parts = []Part{
	{Name: "AMD Zen 4, Zen 5", vendor: "AuthenticAMD", families: []int{25, 26}, BF16Rate: 1}, // measured by "bench limits"
	{Name: "Intel with AVX512_BF16", vendor: "GenuineIntel", families: []int{6}, BF16Rate: 0.5},
	{Name: "unknown", BF16Rate: 1},
}

// findPart returns the row of a processor.
func findPart(vendor string, family int) Part {
	for _, p := range parts {
		if p.vendor != "" && p.vendor != vendor {
			continue
		}
		known := p.families == nil
		for _, f := range p.families {
			known = known || f == family
		}
		if known {
			return p
		}
	}
	panic("cpu: the last row of parts fits none") // it fits all
}

// Parts returns the rows of the table.
func Parts() []Part { return append([]Part(nil), parts...) }

// This returns the row of this processor.
func This() Part { return findPart(identity()) }
