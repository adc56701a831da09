// Package host reports what the machine and the operating system offer: the processor's name, the processors of
// the process, free disk space, peak memory and processor time; and it pins threads to processors.
package host

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A Machine describes the machine of a measurement.
type Machine struct {
	CPU        string // model name of the processor; its architecture if unknown
	Processors int    // available to this process
	Tier       string // of the kernels
	Go         string // version of Go
	System     string // operating system and architecture
}

// ThisMachine returns the machine on which the process runs.
func ThisMachine() Machine {
	return Machine{CPU: model(), Processors: len(Processors()), Tier: cpu.Best().String(), Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH}
}

// model returns the processor's name as Linux reports it.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return runtime.GOARCH
}

// unknownProcessors numbers the processors on a system that does not report which of them the
// process may use.
func unknownProcessors() []int {
	list := make([]int, runtime.NumCPU())
	for i := range list {
		list[i] = i
	}
	return list
}
