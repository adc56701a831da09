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
		vendor string
		family int
		want   string
		rate   float64
	}{
		{"AuthenticAMD", 25, "AMD Zen 4, Zen 5", 1},
		{"AuthenticAMD", 26, "AMD Zen 4, Zen 5", 1},
		{"AuthenticAMD", 27, "unknown", 1},
		{"GenuineIntel", 6, "Intel with AVX512_BF16", 0.5},
		{"GenuineIntel", 19, "unknown", 1},
		{"", 0, "unknown", 1},
	} {
		if p := findPart(tc.vendor, tc.family); p.Name != tc.want || p.BF16Rate != tc.rate {
			t.Errorf("%q family %d: got %q with rate %g, want %q with %g", tc.vendor, tc.family, p.Name, p.BF16Rate, tc.want, tc.rate)
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
