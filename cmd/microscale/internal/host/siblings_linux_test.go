package host

import (
	"slices"
	"testing"
	"testing/fstest"
)

// TestProcessorList checks lists as Linux writes them.
func TestProcessorList(t *testing.T) {
	for text, want := range map[string][]int{"0\n": {0}, "0-1\n": {0, 1}, "3,11\n": {3, 11}, "0,2-4": {0, 2, 3, 4}, "": nil, "x": nil} {
		if got := processorList(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// TestSpeed checks that a capacity counts before a frequency, and that neither is 0.
func TestSpeed(t *testing.T) {
	processors := fstest.MapFS{
		"cpu0/cpu_capacity":              {Data: []byte("446\n")},
		"cpu0/cpufreq/cpuinfo_max_freq":  {Data: []byte("1800000\n")},
		"cpu11/cpufreq/cpuinfo_max_freq": {Data: []byte("4800000\n")},
		"cpu2/cpu_capacity":              {Data: []byte("?")},
	}
	for processor, want := range map[int]int{0: 446, 11: 4800000, 2: 0, 3: 0} {
		if got := speed(processors, processor); got != want {
			t.Errorf("processor %d: got %d, want %d", processor, got, want)
		}
	}
}
