//go:build !linux

package ramdisk

// folder returns "": this system has no standard folder in memory.
func folder() string { return "" }
