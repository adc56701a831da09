package main

import (
	"strings"
	"testing"
)

// TestCheckRejects checks the report and the exit status of products that do not run.
func TestCheckRejects(t *testing.T) {
	status, stdout, stderr := execute("", strings.Fields("check --device h100 --format mxfp8 --m 64 --n 64 --k 64")...)
	want := "microscale: NVIDIA H100 SXM does not run fprop: Hopper sm_90 has no unit for mxfp8: use fp8-tensor, fp8-row, fp8-vec128, bf16\n"
	if status != exitFailed || stderr != want {
		t.Errorf("exit status %d, %q", status, stderr)
	}
	for _, part := range []string{"runs       no\n", "Device compute capability 10.0 or higher", "does not check the device"} {
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), strings.Join(strings.Fields(part), " ")) {
			t.Errorf("the report has no %q:\n%s", part, stdout)
		}
	}
}
