package cli

import (
	"testing"

	"github.com/microscale-go/microscale/train"
)

// TestWithFlag requires flags in place of all fields that a configuration error names.
func TestWithFlag(t *testing.T) {
	c := train.DefaultConfig()
	c.Parallel.ReuseGradBuffer = true
	want := "--reuse-grad-buf-for-mxfp8-param-ag is true, but applies to the gather of quantized weights: set --distributed-optimizer and --fp8-param, too"
	if got := WithFlag(c.CheckRanks(1)); got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestSeparator(t *testing.T) {
	if got := separator.Replace(`a\n\r\t\\n`); got != "a\n\r\t\\n" {
		t.Errorf("got %q", got)
	}
}
