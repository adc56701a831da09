//go:build !amd64 || purego

package bench

// What plain Go can do.
var (
	movers     = []mover{plainMover}
	peaks      = []peak{plainPeak}
	separators = []separator{plainSeparator}
)
