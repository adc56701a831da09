package cpu

// A Part describes the relative speed of instructions on a kind of processor, which CPUID's
// features do not report; kernels are ordered by it. Parts are found by vendor and family,
// never by timing, so that the choice is deterministic.
type Part struct {
	Name     string
	vendor   string // as in CPUID leaf 0; "" for any
	families []int  // as in CPUID leaf 1, extended family included; nil for all

	BF16Rate float64 // rate of VDPBF16PS relative to VFMADD231PS, in instructions; each does twice the work
}

// parts has a row for each kind of processor with AVX512_BF16. The first match counts.
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
	panic("cpu: the last row of parts must match every processor")
}

// Parts returns the rows of the table.
func Parts() []Part { return append([]Part(nil), parts...) }

// This returns the Part of this processor.
func This() Part { return findPart(identity()) }
