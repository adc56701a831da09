//go:build !linux && !purego

package cpu

// permitTiles returns false: the request for AMX registers is implemented for Linux only.
func permitTiles() bool { return false }
