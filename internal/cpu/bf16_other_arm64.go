//go:build !linux && !darwin && !purego

package cpu

// hasBF16 returns false: no way to read it is known here, so that the tier neonbf16 is for Linux and macOS only.
func hasBF16() bool { return false }
