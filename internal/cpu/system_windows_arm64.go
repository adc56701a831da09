//go:build !purego

package cpu

import "golang.org/x/sys/windows"

// systemFeatures returns the features that the system lists and package x/sys/cpu does not read: products of int8 matrices
// and BF16 dot products. Versions of Windows that do not know them list neither. (Microsoft, IsProcessorFeaturePresent.)
func systemFeatures() Set {
	s := Set(0)
	if windows.IsProcessorFeaturePresent(windows.PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE) {
		s |= ARMI8MM
	}
	if windows.IsProcessorFeaturePresent(windows.PF_ARM_V86_BF16_INSTRUCTIONS_AVAILABLE) {
		s |= ARMBF16
	}
	return s
}
