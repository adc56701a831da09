package host

import (
	"slices"
	"testing"
)

// TestProcessorList checks lists as Linux writes them.
func TestProcessorList(t *testing.T) {
	for text, want := range map[string][]int{"0\n": {0}, "0-1\n": {0, 1}, "3,11\n": {3, 11}, "0,2-4": {0, 2, 3, 4}, "": nil, "x": nil} {
		if got := processorList(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
