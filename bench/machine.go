package bench

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/microscale-go/microscale/internal/cpu"
)

// A Machine is what figures were measured on.
type Machine struct {
	CPU        string // name of the processor's model; its architecture where that is not known
	Processors int    // that this process was given
	Tier       string // of the kernels
	Go         string // version
	System     string // operating system and architecture
}

// ThisMachine returns the machine that the process runs on.
func ThisMachine() Machine {
	return Machine{CPU: model(), Processors: Processors(), Tier: cpu.Best().String(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
}

// model returns the processor's name as Linux gives it.
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

// unknownProcessors numbers the processors of a system that does not say which
// of them it gave.
func unknownProcessors() []int {
	list := make([]int, runtime.NumCPU())
	for i := range list {
		list[i] = i
	}
	return list
}
