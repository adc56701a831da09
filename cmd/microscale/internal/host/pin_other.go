//go:build !linux

package host

import "time"

// epoch is the start of the process.
var epoch = time.Now()

func Processors() []int { return unknownProcessors() }

// SharedCores returns false: it is unknown.
func SharedCores() bool { return false }

func Thread() int { return 0 }

// Pin does nothing; the system schedules the threads.
func Pin(int, ...int) bool { return false }

// ThreadTime returns the elapsed time, as if the thread had always run.
func ThreadTime() time.Duration { return time.Since(epoch) }

func OtherThreads([]int) []int { return nil }

func Waited() time.Duration { return 0 }
