// Package slow leaves tests out where they add too little for their time, and says why. A test calls it first.
// .ci/run finds the calls of Long, and its section browser runs the tests that call Browser; the nightly workflow finds those of Full
// and the uses of FullRun. Only tests import it.
package slow

import (
	"flag"
	"os/exec"
	"testing"
)

// The flags of the tests of every package that imports this one. FullRun asks for what takes minutes to hours:
// all values where other runs take a sample, every fault, gigabytes on the disk.
var (
	longRun = flag.Bool("long", false, "run the tests that take more than a few seconds, too")
	FullRun = flag.Bool("full", false, "as -long, and take no samples: all values, every fault, gigabytes on the disk")
)

// Reasons that several tests share.
const (
	Repeats     = "it does the same work for other formats, options or damaged files, one after the other"
	Allocations = "a sync.Pool forgets at random there, and allocations cannot be counted"
	NoKernels   = "no result depends on kernels: memory, bytes on the wire, files or ranks"
	OwnProducts = "it compares our products with each other, divided, held or pooled, which no kernel decides"
)

// Long leaves a test to runs with -long, which .ci/run adds for the tests that have this mark.
func Long(t testing.TB, why string) {
	t.Helper()
	if !*longRun && !*FullRun {
		t.Skip("without -long: " + why)
	}
}

// Full leaves a test to runs with -full, which the nightly workflow adds for the packages that have this mark.
func Full(t testing.TB, why string) {
	t.Helper()
	if !*FullRun {
		t.Skip("without -full: " + why)
	}
}

// Stride returns the distance of the cases that a test takes of many: 1, in a short run short, and under the race
// detector or an emulator, which are 10 and 20 times as slow, slower. The nightly workflow takes all cases without them;
// with the race detector, it takes those of a short run.
func Stride(short, slower int) int {
	switch {
	case *FullRun || !testing.Short():
		return 1
	case emulated || race:
		return slower
	}
	return short
}

// Racing reports whether the race detector watches the test.
func Racing() bool { return race }

// Emulating reports whether an emulator of processors runs the test, as the build tag says.
func Emulating() bool { return emulated }

// Race leaves a test out under the race detector.
func Race(t testing.TB, why string) {
	t.Helper()
	if race {
		t.Skip("under the race detector: " + why)
	}
}

// Purego leaves a test out where portable Go takes the place of all kernels.
func Purego(t testing.TB, why string) {
	t.Helper()
	if purego {
		t.Skip("without kernels: " + why)
	}
}

// Emulated leaves a test out under an emulator of processors, which the build tag of this name says.
func Emulated(t testing.TB, why string) {
	t.Helper()
	if emulated {
		t.Skip("under an emulator: " + why)
	}
}

// Browser returns the path of Chromium. As Long it leaves a test to runs with -long, or out if there is no Chromium.
func Browser(t testing.TB) string {
	t.Helper()
	Long(t, "it starts a browser")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: install the Debian package chromium, or Chrome")
	return ""
}
