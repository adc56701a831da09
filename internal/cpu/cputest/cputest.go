// Package cputest runs a test under every instruction tier.
package cputest

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
)

// Run runs body as one subtest per tier that this processor has, with the tier
// forced, and logs which tiers ran. Of tiers that allow the same rows of the kernel
// tables of the test's program, only the first runs, and under the race detector, which watches what all tiers share,
// only the best; under an emulator tiers between neon and the best are left out, unlike by All. It fails where the operating system lists a
// feature that package cpu did not find, or the reverse, so that a fault in
// detection does not switch tests off in silence; but for AMX, which the system
// may deny to a process: that is logged. Tests that call it must not run in
// parallel with others that use kernels.
func Run(t *testing.T, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	run(t, emulated(cpu.Tiers()), body)
}

// All is Run with all tiers under an emulator, for tests that take milliseconds.
func All(t *testing.T, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	run(t, cpu.Tiers(), body)
}

// Vectors is Run of the tiers that kernels on vectors are written for: for packages that
// have no others, and do the same under those that are left out. Under an emulator it leaves out plain, with which tests of kernels
// compare them.
func Vectors(t *testing.T, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	known := slow.Emulating() && cpu.Best() != cpu.Plain
	tiers := slices.DeleteFunc(cpu.Tiers(), func(tier cpu.Tier) bool { return tier != tier.Vectors() || known && tier == cpu.Plain })
	run(t, emulated(tiers), body)
}

// emulated returns the tiers that run under an emulator: of those above neon only the best, which runs most rows of the others, too.
func emulated(tiers []cpu.Tier) []cpu.Tier {
	if !slow.Emulating() {
		return tiers
	}
	best := tiers[0]
	return slices.DeleteFunc(tiers, func(tier cpu.Tier) bool { return tier != best && tier.Set().Has(cpu.ARMDotProd) })
}

// Force makes a test use the kernels of a tier until it ends or forces another: what it leaves forced would be that
// of the tests behind it.
func Force(t *testing.T, tier cpu.Tier) {
	t.Helper()
	before := cpu.Best()
	t.Cleanup(func() {
		if err := cpu.Force(before); err != nil {
			t.Error(err)
		}
	})
	if err := cpu.Force(tier); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, tiers []cpu.Tier, body func(t *testing.T, tier cpu.Tier)) {
	t.Helper()
	const tiles = cpu.X86AMXTile | cpu.X86AMXBF16 // which a process must ask for
	if system, known := listed(); known {
		if missing := system &^ cpu.Detected(); missing&^tiles != 0 {
			t.Errorf("the operating system lists %s, which was not detected", missing)
		} else if missing != 0 {
			t.Logf("the system lists %s, but does not let this process use them", missing)
		}
		if extra := cpu.Detected() &^ system; extra != 0 {
			t.Errorf("detected %s, which the operating system does not list", extra)
		}
	}
	before := cpu.Best()
	defer func() {
		if err := cpu.Force(before); err != nil {
			t.Error(err)
		}
	}()
	tiers = distinct(tiers, cpu.Forms())
	if slow.Racing() {
		tiers = tiers[:1]
	}
	for _, tier := range tiers {
		if err := cpu.Force(tier); err != nil {
			t.Fatal(err)
		}
		t.Run("kernel="+tier.String(), func(t *testing.T) { body(t, tier) })
	}
	t.Logf("tiers that ran: %v", tiers)
}

// distinct returns the first of the tiers that allow the same of the rows of kernel tables; without rows, all tiers.
func distinct(tiers []cpu.Tier, rows []cpu.Form) (kept []cpu.Tier) {
	for _, tier := range tiers {
		same := func(other cpu.Tier) bool {
			return !slices.ContainsFunc(rows, func(row cpu.Form) bool { return tier.Set().Has(row.Needs) != other.Set().Has(row.Needs) })
		}
		if len(rows) == 0 || !slices.ContainsFunc(kept, same) {
			kept = append(kept, tier)
		}
	}
	return kept
}

// listed returns the features that Linux lists, in builds that have assembly. An emulator may show the list of
// another architecture, which has another name.
func listed() (s cpu.Set, known bool) {
	if !assembly {
		return 0, false
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0, false // not Linux
	}
	field := map[string]string{"amd64": "flags", "arm64": "Features"}[runtime.GOARCH]
	for line := range strings.Lines(string(text)) {
		name, list, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != field {
			continue
		}
		have := strings.Fields(list)
		for _, f := range cpu.AllFeatures().Features() {
			if slices.Contains(have, f.String()) {
				s |= f
			}
		}
		return s, true
	}
	return 0, false
}
