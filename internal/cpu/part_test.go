package cpu

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestParts checks the rows of known processors and of an unknown one.
func TestParts(t *testing.T) {
	for _, tc := range []struct {
		vendor   string
		family   int
		features Set
		want     string
		rate     float64 // of BF16 products
	}{
		{"AuthenticAMD", 25, avx512, "AMD Zen 4, Zen 5", 64},
		{"AuthenticAMD", 26, avx512, "AMD Zen 4, Zen 5", 64},
		{"AuthenticAMD", 25, avx2, "AMD or Intel with AVX2", 64},
		{"AuthenticAMD", 23, avx2, "AMD or Intel with AVX2", 64},
		{"AuthenticAMD", 27, avx512, "unknown", 64},
		{"GenuineIntel", 6, avx512, "Intel with AVX512_BF16", 64},
		{"GenuineIntel", 6, avx512vnni, "Intel with AVX-512", 64},
		{"GenuineIntel", 6, avx2, "AMD or Intel with AVX2", 64},
		{"", 0, 0, "unknown", 64},
	} {
		if p := findPart(tc.vendor, tc.family, tc.features); p.Name != tc.want || p.Rate("VDPBF16PS zmm") != tc.rate {
			t.Errorf("%q family %d: got %q with rate %g, want %q with %g", tc.vendor, tc.family, p.Name, p.Rate("VDPBF16PS zmm"), tc.want, tc.rate)
		}
	}
}

// TestIdentity compares vendor and family with those that the operating system reports.
func TestIdentity(t *testing.T) {
	vendor, family := identity()
	if vendor == "" {
		t.Skip("this build has no assembly")
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip("not Linux")
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			listed[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	if listed["vendor_id"] != vendor || listed["cpu family"] != strconv.Itoa(family) {
		t.Errorf("identity(): got %q, %d, want %q, %s", vendor, family, listed["vendor_id"], listed["cpu family"])
	}
}
