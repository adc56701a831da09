//go:build !amd64 || purego

package cpu

import "testing"

// TestForceBuild: without assembly it is the build that lacks a tier, not the processor.
func TestForceBuild(t *testing.T) {
	const want = "this build cannot run the kernel tier avx2: it has plain"
	if err := Force(AVX2); err == nil || err.Error() != want {
		t.Errorf("Force(AVX2) = %v, want %s", err, want)
	}
}
