//go:build !linux && !darwin && !freebsd && !windows

package memory

// Available returns more than any machine has: this system is not supported.
func Available() int64 { return unknown }
