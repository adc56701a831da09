package host

import (
	"cmp"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// given lists the processors available to the process at its start, before it pinned any
// Thread, the fastest first.
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
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Compare(speed(os.DirFS(processorsDir), b), speed(os.DirFS(processorsDir), a))
	})
	return list
}()

// processorsDir is the folder in which Linux describes processors.
const processorsDir = "/sys/devices/system/cpu"

// speed returns the relative speed of a processor beside others of this machine, whose cores may differ, or 0 if it is
// unknown: its capacity, which Linux lists where cores differ in what they do in a cycle, or its highest frequency in kHz.
func speed(processors fs.FS, processor int) int {
	for _, name := range []string{"cpu_capacity", "cpufreq/cpuinfo_max_freq"} {
		text, err := fs.ReadFile(processors, "cpu"+strconv.Itoa(processor)+"/"+name)
		if n, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
			return n
		}
	}
	return 0
}

// Processors returns the processors available to this process, the fastest first.
func Processors() []int {
	if len(given) == 0 {
		return unknownProcessors()
	}
	return given
}

// SharedCores reports whether several of Processors are threads of one core.
func SharedCores() bool {
	mine := Processors()
	for _, p := range mine {
		text, err := os.ReadFile(processorsDir + "/cpu" + strconv.Itoa(p) + "/topology/thread_siblings_list")
		if err != nil {
			return false
		}
		for _, sibling := range processorList(string(text)) {
			if sibling != p && slices.Contains(mine, sibling) {
				return true
			}
		}
	}
	return false
}

// processorList parses Linux's list of processors, such as 0,2-3.
func processorList(text string) (list []int) {
	for _, span := range strings.Split(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(span, "-")
		from, err := strconv.Atoi(first)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(last)
		}
		for p := from; err == nil && p <= to; p++ {
			list = append(list, p)
		}
	}
	return list
}

// Thread returns the id of the calling thread.
func Thread() int { return unix.Gettid() }

// Pin restricts a thread to some processors and reports whether it succeeded.
func Pin(thread int, processors ...int) bool {
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	return unix.SchedSetaffinity(thread, &set) == nil
}

// ThreadTime returns the CPU time of the calling thread.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// OtherThreads returns the ids of the process's threads, except the given ones. A new thread
// inherits the processors of its parent.
func OtherThreads(but []int) []int {
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

// Waited returns how long all threads of the process that run now have waited for a
// processor; 0 if the kernel does not count that.
func Waited() time.Duration {
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
