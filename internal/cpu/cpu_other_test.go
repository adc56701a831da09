//go:build (!amd64 && !arm64) || purego

package cpu

import "testing"

// TestForceBuild checks that the error without assembly blames the build, not the processor.
func TestForceBuild(t *testing.T) {
	const want = "this build does not support the kernel tier avx2: it supports plain"
	if err := Force(AVX2); err == nil || err.Error() != want {
		t.Errorf("Force(AVX2): got %v, want %s", err, want)
	}
}
