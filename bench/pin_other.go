//go:build !linux

package bench

import "time"

// epoch is when the process began.
var epoch = time.Now()

func processors() []int { return unknownProcessors() }

func thread() int { return 0 }

// pin does nothing: the system decides where threads run.
func pin(int, ...int) bool { return false }

// threadTime returns the time of the clock, as if the thread had always run.
func threadTime() time.Duration { return time.Since(epoch) }

func others([]int) []int { return nil }

func waited() time.Duration { return 0 }
