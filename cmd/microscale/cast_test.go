package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/iotest"
)

// allBF16 returns every bfloat16 pattern in numeric order, little-endian.
func allBF16() []byte {
	b := make([]byte, 0, 1<<17)
	for i := range 1 << 16 {
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
	}
	return b
}

// TestRawBF16 streams every bfloat16 pattern and compares the hash of the codes
// with an independent brute-force computation of cvt.rn.satfinite, and of cvt.rp
// and cvt.rz for e8m0.
func TestRawBF16(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--to e4m3", "2f8096b3b00699a8"},
		{"--to e5m2", "69d1394f72425f9b"},
		{"--to e2m3", "f5c2d705e7886df3"},
		{"--to e3m2", "91789e860fc384ff"},
		{"--to e2m1", "8692da74cf3cf29c"},
		{"--to e8m0", "071ed5f46e6976a0"},
		{"--to e8m0 --rounding toward-zero", "31275856a8aaec04"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := append(strings.Fields("cast --raw --from bf16"), strings.Fields(tc.args)...)
			status, stdout, stderr := execute(string(allBF16()), args...)
			if status != exitDone || stderr != "" {
				t.Fatalf("exit status %d: %s", status, stderr)
			}
			sum := sha256.Sum256([]byte(stdout))
			if got := hex.EncodeToString(sum[:8]); len(stdout) != 1<<16 || got != tc.want {
				t.Errorf("%d codes that hash to %s, want %s", len(stdout), got, tc.want)
			}
		})
	}
}

// TestRawWidths converts one value from and to all widths.
func TestRawWidths(t *testing.T) {
	for _, tc := range []struct{ from, to, in, want string }{
		{"f32", "e4m3", "a857ca3e", "2d"},
		{"f32", "e5m2", "a857ca3e", "36"},
		{"f32", "bf16", "a857ca3e", "ca3e"},
		{"f32", "fp16", "a857ca3e", "5336"},
		{"f32", "f32", "a857ca3e", "a857ca3e"},
		{"bf16", "f32", "ca3e", "0000ca3e"},
		{"fp16", "f32", "5336", "0060ca3e"},
		{"fp16", "e4m3", "5336", "2d"},
		{"f32", "e4m3", "0000c07f", "7f"},
		{"f32", "e4m3", "0000c0ff", "7f"},
		{"f32", "e2m1", "0000c0ff", "07"},
		{"f32", "e4m3", "000080ff", "fe"},
		{"f32", "e4m3", "", ""},
	} {
		in, err := hex.DecodeString(tc.in)
		if err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := execute(string(in), "cast", "--raw", "--from", tc.from, "--to", tc.to)
		if got := hex.EncodeToString([]byte(stdout)); status != exitDone || got != tc.want {
			t.Errorf("%s %s to %s: exit status %d, %s%s, want %s", tc.from, tc.in, tc.to, status, got, stderr, tc.want)
		}
	}
}

// TestRawChunks streams inputs around the buffer size, also byte by byte, with random
// bits that depend on the position of each value.
func TestRawChunks(t *testing.T) {
	args := strings.Fields("cast --raw --from bf16 --to e2m1 --rounding stochastic --seed 5")
	values := bytes.Repeat([]byte{0x10, 0x3f}, 1<<15+1)
	_, whole, _ := execute(string(values), args...)
	if zeros := strings.Count(whole, "\x00"); zeros != 0 || len(whole) != 1<<15+1 {
		t.Fatalf("0.5625 became %d zeros in %d codes", zeros, len(whole))
	}
	if ups := strings.Count(whole, "\x02"); math.Abs(float64(ups)/float64(len(whole))-0.125) > 0.01 {
		t.Errorf("0.5625 went up %d times of %d, want one in eight", ups, len(whole))
	}
	for _, n := range []int{1, 1<<14 - 1, 1 << 14, 1<<14 + 1, 1 << 15, 1<<15 + 1} {
		var out, stderr bytes.Buffer
		status := run(args, iotest.OneByteReader(bytes.NewReader(values[:2*n])), &out, &stderr)
		if status != exitDone || out.String() != whole[:n] {
			t.Errorf("%d values: exit status %d, other codes than those of the whole: %s", n, status, stderr.String())
		}
	}
}

// TestRawPartial checks that an input that ends within a pattern is an error with its
// size, after the complete patterns were converted.
func TestRawPartial(t *testing.T) {
	for _, tc := range []struct {
		from  string
		bytes int
		codes int
	}{{"bf16", 1, 0}, {"bf16", 7, 3}, {"f32", 4*(1<<14) + 3, 1 << 14}, {"fp16", 2*(1<<14) + 1, 1 << 14}} {
		status, stdout, stderr := execute(strings.Repeat("\x00", tc.bytes), "cast", "--raw", "--to", "e4m3", "--from", tc.from)
		if status != exitFailed || len(stdout) != tc.codes || !strings.Contains(stderr, fmt.Sprintf("got %d bytes, want a multiple of",
			tc.bytes)) {
			t.Errorf("%d bytes of %s: exit status %d, %d codes, %q", tc.bytes, tc.from, status, len(stdout), stderr)
		}
	}
	var out, stderr bytes.Buffer
	status := run([]string{"cast", "--raw", "--to", "e4m3"}, iotest.ErrReader(errFull), &out, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "read standard input after 0 patterns: ") {
		t.Errorf("a reader that fails: exit status %d, %q", status, stderr.String())
	}
}

// TestPaperExample checks the number in the documentation of Transformer Engine.
func TestPaperExample(t *testing.T) {
	for _, tc := range []struct{ to, code, value string }{
		{"e4m3", "0x2d", "0.40625"},
		{"e5m2", "0x36", "0.375"},
		{"bf16", "0x3eca", "0.39453125"},
		{"fp16", "0x3653", "0.395263671875"},
	} {
		_, stdout, _ := execute("", "cast", "--to", tc.to, "0.3952")
		if !strings.Contains(stdout, "  "+tc.code+"  "+tc.value+"  ") {
			t.Errorf("0.3952 in %s lacks %s and %s: %s", tc.to, tc.code, tc.value, stdout)
		}
	}
}
