//go:build !linux && !darwin && !windows && !purego

package cpu

// systemFeatures returns nothing: no way to read more than package x/sys/cpu does is known here, so that the tier neonbf16 is for Linux,
// macOS and Windows only.
func systemFeatures() Set { return 0 }
