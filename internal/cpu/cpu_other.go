//go:build !amd64 || purego

package cpu

// requirements returns the tiers above Plain: there are none.
func requirements() []requirement { return nil }
