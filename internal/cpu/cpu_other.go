//go:build (!amd64 && !arm64) || purego

package cpu

// requirements returns nil: there are no tiers above Plain.
func requirements() []requirement { return nil }

// identity returns nothing: there are no kernels to order.
func identity() (vendor string, family int) { return "", 0 }
