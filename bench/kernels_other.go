//go:build !amd64 || purego

package bench

// movers and peaks have what plain Go can do.
var (
	movers = []mover{plainMover}
	peaks  = []peak{plainPeak}
)
