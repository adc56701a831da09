package bench

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// given lists the processors available to the process at its start, before it pinned any
// thread.
var given = func() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var list []int
	for i := 0; len(list) < set.Count(); i++ {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}()

// processors returns the processors available to this process.
func processors() []int {
	if len(given) == 0 {
		return unknownProcessors()
	}
	return given
}

// thread returns the id of the calling thread.
func thread() int { return unix.Gettid() }

// pin restricts a thread to some processors and reports whether it succeeded.
func pin(thread int, processors ...int) bool {
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	return unix.SchedSetaffinity(thread, &set) == nil
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// others returns the ids of the process's threads, except the given ones. A new thread
// inherits the processors of its parent.
func others(but []int) []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var list []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil && !slices.Contains(but, id) {
			list = append(list, id)
		}
	}
	return list
}

// waited returns how long all threads of the process that run now have waited for a
// processor; 0 if the kernel does not count that.
func waited() time.Duration {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, e := range entries {
		text, err := os.ReadFile("/proc/self/task/" + e.Name() + "/schedstat")
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil { // the others are time on a processor and time slices
				sum += time.Duration(n)
			}
		}
	}
	return sum
}
