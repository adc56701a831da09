//go:build !linux && !darwin && !purego

package cpu

// hasBF16 returns false: no way to read it is known here.
func hasBF16() bool { return false }
