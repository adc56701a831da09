// Package cputest runs a test under every instruction tier.
package cputest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
)

// Run runs body as one subtest per tier that this processor has, with the tier
// forced, and logs which tiers ran. It fails where the operating system lists
// the instructions of a tier but package cpu did not find it, so that a fault
// in detection does not switch tests off in silence; but for AMX, which the system
// may deny to a process: that is logged. Tests that call it must not run in
// parallel with others that use kernels.
func Run(t *testing.T, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	run(t, cpu.Tiers(), body)
}

// Vectors is Run of the tiers that kernels on vectors are written for: for packages that
// have no others, and do the same under those that are left out.
func Vectors(t *testing.T, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	run(t, slices.DeleteFunc(cpu.Tiers(), func(tier cpu.Tier) bool { return tier != tier.Vectors() }), body)
}

func run(t *testing.T, tiers []cpu.Tier, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	for _, tier := range listed() {
		switch {
		case cpu.Has(tier):
		case tier == cpu.AMX: // which a process must ask for
			t.Logf("the system lists what the tier %v needs, but does not let this process use it", tier)
		default:
			t.Errorf("the operating system lists what the tier %v needs, but it was not detected", tier)
		}
	}
	before := cpu.Best()
	defer func() {
		if err := cpu.Force(before); err != nil {
			t.Error(err)
		}
	}()
	for _, tier := range tiers {
		if err := cpu.Force(tier); err != nil {
			t.Fatal(err)
		}
		t.Run("kernel="+tier.String(), func(t *testing.T) { body(t, tier) })
	}
	t.Logf("tiers that ran: %v", tiers)
}

// flags has the names of a tier's instructions in Linux's list.
var flags = map[cpu.Tier]string{
	cpu.AVX2:   avx2,
	cpu.AVX512: avx512,
	cpu.AMX:    avx512 + " amx_tile amx_bf16",
}

const (
	avx2   = "avx2 fma f16c"
	avx512 = avx2 + " avx512f avx512bw avx512vl avx512dq avx512vbmi avx512_vnni avx512_bf16 gfni"
)

// listed returns the tiers above plain whose instructions Linux lists, in
// builds that have assembly.
func listed() []cpu.Tier {
	if !assembly {
		return nil
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil // not Linux
	}
	var have []string
	for line := range strings.Lines(string(text)) {
		if name, list, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			have = strings.Fields(list)
			break
		}
	}
	var tiers []cpu.Tier
	for tier, needs := range flags {
		if !slices.ContainsFunc(strings.Fields(needs), func(f string) bool { return !slices.Contains(have, f) }) {
			tiers = append(tiers, tier)
		}
	}
	return tiers
}
