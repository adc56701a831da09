package catalog

import (
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestHardware checks which generations multiply a format, and that 128×128 weights are taken
// with inputs in vectors of 128.
func TestHardware(t *testing.T) {
	for _, tc := range []struct {
		format quant.Format
		want   string
	}{
		{quant.NVFP4, "Blackwell, Blackwell Ultra, RTX Blackwell"},
		{quant.FP8Block, "Hopper"},
		{quant.FP8Row, "Hopper, CDNA4"},
		{quant.MXINT8, "-"},
	} {
		if got := hardwareText(tc.format); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.format, got, tc.want)
		}
	}
}
