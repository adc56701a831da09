//go:build !amd64 || purego

package bench

// The portable Go implementations.
var (
	movers     = []mover{plainMover}
	peaks      = []peak{plainPeak}
	separators = []separator{plainSeparator(32), plainSeparator(16)}
)
