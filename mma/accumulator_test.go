package mma_test

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/mma"
)

// TestAccumulatorText checks the texts of accumulators in both directions, and the errors of others.
func TestAccumulatorText(t *testing.T) {
	for _, tc := range []struct {
		text, want string // want: what String returns, or the start of the error
		promote    int
	}{
		{"fp32", "fp32", 0},
		{"FP32", "fp32", 0},
		{"hopper-wgmma", "hopper-wgmma", 0},
		{"Hopper-WGMMA:128", "hopper-wgmma:128", 128},
		{"hopper-wgmma:0", `accumulator "hopper-wgmma:0": got promotion interval "0", want a number of elements, such as hopper-wgmma:128`, -1},
		{"hopper-wgmma:-1", `accumulator "hopper-wgmma:-1": got promotion interval "-1"`, -1},
		{"hopper-wgmma:", `accumulator "hopper-wgmma:": got promotion interval ""`, -1},
		{"fp32:128", `accumulator "fp32:128": fp32 has no promotion interval: use fp32, or a model such as hopper-wgmma:128`, -1},
		{"h100", `unknown model "h100": use one of volta-mma, `, -1},
		{"hopper", `unknown model "hopper": did you mean hopper-mma or hopper-wgmma?`, -1},
	} {
		var a mma.Accumulator
		err := a.UnmarshalText([]byte(tc.text))
		if tc.promote < 0 {
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || a != (mma.Accumulator{}) {
				t.Errorf("%s: got %v and %v, want error %s", tc.text, a, err, tc.want)
			}
			continue
		}
		if err != nil || a.String() != tc.want || a.Promote != tc.promote {
			t.Errorf("%s: got %s with interval %d, %v, want %s with %d", tc.text, a, a.Promote, err, tc.want, tc.promote)
		}
		text, err := a.MarshalText()
		var back mma.Accumulator
		if err != nil || back.UnmarshalText(text) != nil || back != a {
			t.Errorf("%s: got %s back from %q, %v", tc.text, back, text, err)
		}
	}
}
