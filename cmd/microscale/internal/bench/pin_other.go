//go:build !linux

package bench

import "time"

// epoch is the start of the process.
var epoch = time.Now()

func processors() []int { return unknownProcessors() }

func thread() int { return 0 }

// pin does nothing; the system schedules the threads.
func pin(int, ...int) bool { return false }

// threadTime returns the elapsed time, as if the thread had always run.
func threadTime() time.Duration { return time.Since(epoch) }

func others([]int) []int { return nil }

func waited() time.Duration { return 0 }
