//go:build !purego

package cpu

// requirements returns the tiers above Plain. Go's arm64 requires Advanced SIMD.
func requirements() []requirement { return []requirement{{NEON, true}} }

// identity returns nothing: the table of parts has no arm64 processors.
func identity() (vendor string, family int) { return "", 0 }
