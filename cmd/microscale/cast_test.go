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

	"github.com/microscale-go/microscale/format"
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

// TestRawWidths casts one value from and to all widths.
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

// TestRawChunks streams inputs around the size of a chunk, a byte at a time too,
// with random bits that depend on the position of each value.
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

// TestRawPartial checks that an input that ends within a pattern is a failure
// that names its size, after everything before it was cast.
func TestRawPartial(t *testing.T) {
	for _, tc := range []struct {
		from  string
		bytes int
		codes int
	}{{"bf16", 1, 0}, {"bf16", 7, 3}, {"f32", 4*(1<<14) + 3, 1 << 14}, {"fp16", 2*(1<<14) + 1, 1 << 14}} {
		status, stdout, stderr := execute(strings.Repeat("\x00", tc.bytes), "cast", "--raw", "--to", "e4m3", "--from", tc.from)
		if status != exitFailed || len(stdout) != tc.codes || !strings.Contains(stderr, fmt.Sprintf("its %d bytes", tc.bytes)) {
			t.Errorf("%d bytes of %s: exit status %d, %d codes, %q", tc.bytes, tc.from, status, len(stdout), stderr)
		}
	}
	var out, stderr bytes.Buffer
	status := run([]string{"cast", "--raw", "--to", "e4m3"}, iotest.ErrReader(errFull), &out, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "cannot read standard input") {
		t.Errorf("a reader that fails: exit status %d, %q", status, stderr.String())
	}
}

// TestPaperExample is the number that the Transformer Engine documentation casts.
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

func TestParseNumber(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		text    string
		from    *format.Scalar
		want    float32
		pattern uint32
	}{
		{"0.3952", format.F32, 0.3952, 0x3eca57a8},
		{"0.3952", format.BF16, 0.39453125, 0x3eca},
		{"0.3952", format.FP16, 0.395263671875, 0x3653},
		{"0x1.8p1", format.F32, 3, 0x40400000},
		{"0x3f800000", format.F32, 1, 0x3f800000},
		{"0X3F80", format.BF16, 1, 0x3f80},
		{"0x3c00", format.FP16, 1, 0x3c00},
		{"0x1", format.F32, math.SmallestNonzeroFloat32, 1},
		{"-0", format.F32, float32(math.Copysign(0, -1)), 0x80000000},
		{"0.00e-50", format.F32, 0, 0},
		{"0x0p-200", format.F32, 0, 0},
		{"-0e5", format.BF16, float32(math.Copysign(0, -1)), 0x8000},
		{"0.71e-45", format.F32, math.SmallestNonzeroFloat32, 1},
		{"1e-44", format.BF16, 0, 0},
		{"-inf", format.BF16, float32(math.Inf(-1)), 0xff80},
		{"1e5", format.FP16, float32(math.Inf(1)), 0x7c00},
		{"nan", format.F32, nan, 0x7fc00000},
		{"NaN", format.BF16, nan, 0x7fc0},
		{"-nan", format.FP16, nan, 0xfe00},
		{"0x7fa00001", format.F32, nan, 0x7fa00001},
	} {
		v, pattern, err := parseNumber(tc.text, tc.from)
		same := v == tc.want && math.Signbit(float64(v)) == math.Signbit(float64(tc.want)) || v != v && tc.want != tc.want
		if err != nil || !same || pattern != tc.pattern {
			t.Errorf("%s in %s is %v, %#x, %v, want %v, %#x", tc.text, tc.from, v, pattern, err, tc.want, tc.pattern)
		}
		if !isNumber(tc.text) && strings.HasPrefix(tc.text, "-") {
			t.Errorf("%s is not taken for a number", tc.text)
		}
	}
	for _, text := range []string{"", "-", "x", "--1", "1e39", "0.69e-45", "0x1.8p-151", "1e-400", "0x", "0x1ffffffff", "0xg", "-0x3f80"} {
		if v, _, err := parseNumber(text, format.F32); err == nil {
			t.Errorf("%q is taken for %v", text, v)
		}
	}
}

// TestNeighbors checks every code of every small format, and the midpoints.
func TestNeighbors(t *testing.T) {
	for _, f := range format.All() {
		if f.Bits() > 8 {
			continue
		}
		for code := range f.MaxCode() {
			a, b := f.Decode(code), f.Decode(code+1)
			if lower, upper := neighbors(a, f); lower != a || upper != a {
				t.Errorf("%s: %v lies between %v and %v", f, a, lower, upper)
			}
			middle := float32((float64(a) + float64(b)) / 2)
			if lower, upper := neighbors(-middle, f); lower != a || upper != b {
				t.Errorf("%s: %v lies between %v and %v, want %v and %v", f, -middle, lower, upper, a, b)
			}
			if m := marks(middle, f.Encode(middle), f); len(m) == 0 || m[len(m)-1] != "tie" {
				t.Errorf("%s: %v is marked %q, want tie", f, middle, m)
			}
		}
		if lower, upper := neighbors(2*f.Max(), f); lower != f.Max() || upper == upper {
			t.Errorf("%s: beyond its largest value there are %v and %v", f, lower, upper)
		}
	}
	if lower, upper := neighbors(0, format.E8M0); lower == lower || upper != format.E8M0.Smallest() {
		t.Errorf("e8m0: 0 lies between %v and %v", lower, upper)
	}
}

// TestFields checks that the binary digits of codes are grouped as their format is.
func TestFields(t *testing.T) {
	for _, tc := range []struct {
		format      *format.Scalar
		code        uint32
		names, bits string
		hex         string
	}{
		{format.E4M3, 0x2d, "s eeee mmm", "0 0101 101", "0x2d"},
		{format.E5M2, 0xb6, "s eeeee mm", "1 01101 10", "0xb6"},
		{format.E2M1, 0x9, "s ee m", "1 00 1", "0x9"},
		{format.E3M2, 0x29, "s eee mm", "1 010 01", "0x29"},
		{format.INT8, 0xb2, "s iiiiiii", "1 0110010", "0xb2"},
		{format.E8M0, 0x7f, "eeeeeeee", "01111111", "0x7f"},
		{format.UE4M3, 0x2d, "eeee mmm", "0101 101", "0x2d"},
		{format.FP16, 0x3653, "s eeeee mmmmmmmmmm", "0 01101 1001010011", "0x3653"},
	} {
		if names, bits, hex := fieldNames(tc.format), bitsText(tc.code, tc.format), hexText(tc.code, tc.format); names != tc.names || bits != tc.bits || hex != tc.hex {
			t.Errorf("%s: %q %q %q, want %q %q %q", tc.format, names, bits, hex, tc.names, tc.bits, tc.hex)
		}
	}
}
