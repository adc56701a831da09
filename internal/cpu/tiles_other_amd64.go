//go:build !linux && !purego

package cpu

// permitTiles reports that the registers of AMX are not used: how to ask for them is
// known for Linux.
func permitTiles() bool { return false }
