package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/layout"
)

// TestLayout converts scales there and back, finds the swizzled ones, and checks them.
func TestLayout(t *testing.T) {
	const rows, blocks = 130, 5
	scales := make([]byte, rows*blocks)
	for i := range scales {
		scales[i] = byte(100 + i/blocks%40)
	}
	shape := strings.Fields("--format mxfp8 --rows 130 --cols 160")
	layoutOf := func(stdin string, args ...string) (int, string, string) {
		return execute(stdin, append(append([]string{"layout"}, shape...), args...)...)
	}
	status, swizzled, stderr := layoutOf(string(scales), "--from", "mlx", "--to", "cublas")
	want := make([]byte, layout.Swizzled.Size(rows, blocks))
	layout.Reorder(want, layout.Swizzled, scales, layout.RowMajor, rows, blocks)
	if status != exitDone || swizzled != string(want) {
		t.Fatalf("exit status %d, %s", status, stderr)
	}
	if _, back, _ := layoutOf(swizzled, "--to", "row-major", "--from", "swizzled"); back != string(scales) {
		t.Error("the round trip differs")
	}
	if status, out, _ := layoutOf(swizzled, "--find"); status != exitDone || !strings.HasPrefix(out, "found: swizzled\n") {
		t.Errorf("exit status %d, %s", status, out)
	}
	if status, out, _ := layoutOf(swizzled, "--find", "--json"); status != exitDone || !strings.Contains(out, `"certain": true`) {
		t.Errorf("exit status %d, %s", status, out)
	}
	if status, out, _ := layoutOf(swizzled, "--check", "swizzled"); status != exitDone || out != "2048 bytes are 130×160 mxfp8 in swizzled\n" {
		t.Errorf("exit status %d, %s", status, out)
	}
	for _, tc := range []struct{ stdin, args, want string }{
		{swizzled[1:], "--check swizzled", "microscale: layout: got 2047 bytes, want 2048 for 130×160 mxfp8 in swizzled\n"},
		{strings.Repeat("\x7f", 2048), "--check swizzled", "microscale: layout: padding of swizzled at byte 513 is 0x7f, want 0\n"},
		{swizzled, "--check row-major", "microscale: layout: got 2048 bytes, want 650 for 130×160 mxfp8 in row-major\n"},
		{swizzled[1:], "--find", "microscale: standard input: 2047 bytes are in no layout of 130×160 mxfp8: check --rows, --cols and --format\n"},
		{strings.Repeat("\x00", 30000), "--find", "microscale: standard input: got more than 21450 bytes"},
	} {
		status, out, stderr := layoutOf(tc.stdin, strings.Fields(tc.args)...)
		if status != exitFailed || !strings.HasPrefix(stderr, tc.want) || out != "" {
			t.Errorf("%s: exit status %d, %q, %q", tc.args, status, out, stderr)
		}
	}
	if !bytes.Equal(scales[:2], []byte{100, 100}) {
		t.Error("the source changed")
	}
}
