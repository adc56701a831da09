//go:build !linux

package bench

func processors() []int { return unknownProcessors() }

func thread() int { return 0 }

// pin does nothing: the system decides where threads run.
func pin(int, ...int) bool { return false }

func others([]int) []int { return nil }
