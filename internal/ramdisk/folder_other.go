//go:build !linux

package ramdisk

// folder returns "": there is no folder in memory that is always at one place.
func folder() string { return "" }
