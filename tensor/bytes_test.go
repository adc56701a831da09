package tensor_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// bits returns the bit patterns of values, to distinguish NaNs and zeros.
func bits(values []float32) []uint32 {
	b := make([]uint32, len(values))
	for i, v := range values {
		b[i] = math.Float32bits(v)
	}
	return b
}

// TestBytes checks values of each format against bytes computed by hand.
func TestBytes(t *testing.T) {
	for _, tc := range []struct {
		format *format.Scalar
		values []float32
		bytes  []byte
	}{
		{format.F32, []float32{1, -2.5}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0}},
		{format.BF16, []float32{1, -2.5}, []byte{0x80, 0x3f, 0x20, 0xc0}},
		{format.FP16, []float32{1, -2.5}, []byte{0x00, 0x3c, 0x00, 0xc1}},
		{format.BF16, nil, nil},
	} {
		got := make([]byte, len(tc.bytes))
		if err := tensor.ToBytes(got, tc.values, tc.format); err != nil || !bytes.Equal(got, tc.bytes) {
			t.Errorf("format=%v: %v: got %x, %v, want %x", tc.format, tc.values, got, err, tc.bytes)
		}
		values := make([]float32, len(tc.values))
		if err := tensor.FromBytes(values, tc.bytes, tc.format); err != nil {
			t.Errorf("format=%v: %v", tc.format, err)
		}
		for i, b := range bits(values) {
			if b != math.Float32bits(tc.values[i]) {
				t.Errorf("format=%v: %x: got %v, want %v", tc.format, tc.bytes, values, tc.values)
			}
		}
	}
}

// TestRoundTrip16 reads all 65536 patterns and writes them back. A NaN becomes the NaN of all
// ones, with its sign if reading preserves it (BF16).
func TestRoundTrip16(t *testing.T) {
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	for _, tc := range []struct {
		format *format.Scalar
		inf    uint16
		value  func(pattern uint16) float64
		nan    func(pattern uint16) uint16
	}{
		{format.BF16, 0x7f80,
			func(p uint16) float64 { return float64(math.Float32frombits(uint32(p) << 16)) },
			func(p uint16) uint16 { return p | 0x7fff }},
		{format.FP16, 0x7c00, half,
			func(uint16) uint16 { return 0x7fff }},
	} {
		t.Run("format="+tc.format.Name, func(t *testing.T) {
			values := make([]float32, 1<<16)
			if err := tensor.FromBytes(values, src, tc.format); err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, len(src))
			if err := tensor.ToBytes(dst, values, tc.format); err != nil {
				t.Fatal(err)
			}
			for i, v := range values {
				pattern := uint16(i)
				back := binary.LittleEndian.Uint16(dst[2*i:])
				want := pattern
				if pattern&0x7fff > tc.inf {
					want = tc.nan(pattern)
					if v == v {
						t.Fatalf("NaN %#04x: got %v", pattern, v)
					}
				} else if w := tc.value(pattern); float64(v) != w || math.Signbit(float64(v)) != math.Signbit(w) {
					t.Fatalf("%#04x: got %v, want %v", pattern, v, w)
				}
				if back != want {
					t.Fatalf("round trip of %#04x: got %#04x, want %#04x", pattern, back, want)
				}
			}
		})
	}
}

// half returns the value of a binary16 pattern that is not NaN, by IEEE 754.
func half(p uint16) float64 {
	sign := 1 - 2*float64(p>>15)
	e, m := int(p>>10&31), float64(p&1023)
	switch e {
	case 0:
		if m == 0 {
			return math.Copysign(0, sign)
		}
		return sign * m * 0x1p-24
	case 31:
		return math.Inf(int(sign))
	}
	return sign * (1 + m/1024) * math.Pow(2, float64(e-15))
}

// TestFloat32Bits checks that float32 keeps every bit, also of signaling NaNs.
func TestFloat32Bits(t *testing.T) {
	patterns := []uint32{0, 1 << 31, 1, 0x807fffff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffa5a5a5, 0x7fffffff}
	for p := uint64(0); p < 1<<32; p += 99991 {
		patterns = append(patterns, uint32(p))
	}
	src := make([]byte, 4*len(patterns))
	for i, p := range patterns {
		binary.LittleEndian.PutUint32(src[4*i:], p)
	}
	values := make([]float32, len(patterns))
	if err := tensor.FromBytes(values, src, format.F32); err != nil {
		t.Fatal(err)
	}
	for i, b := range bits(values) {
		if b != patterns[i] {
			t.Fatalf("%#08x: got %#08x", patterns[i], b)
		}
	}
	dst := make([]byte, len(src))
	if err := tensor.ToBytes(dst, values, format.F32); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dst, src) {
		t.Error("the round trip changed the bytes")
	}
}

// TestToBytesRounds checks rounding to nearest even and overflow to infinity.
func TestToBytesRounds(t *testing.T) {
	for _, tc := range []struct {
		format *format.Scalar
		value  float32
		want   uint16
	}{
		{format.BF16, 1 + 0x1p-8, 0x3f80}, {format.BF16, 1 + 0x3p-8, 0x3f82}, {format.BF16, 1 + 0x1.8p-8, 0x3f81},
		{format.BF16, math.MaxFloat32, 0x7f80}, {format.BF16, -math.MaxFloat32, 0xff80}, {format.BF16, 0x1p-133, 0x0001},
		{format.BF16, 0x1p-134, 0},
		{format.FP16, 1 + 0x1p-11, 0x3c00}, {format.FP16, 1 + 0x3p-11, 0x3c02},
		{format.FP16, 65519, 0x7bff}, {format.FP16, 65520, 0x7c00}, {format.FP16, -1e6, 0xfc00}, {format.FP16, 0x1p-25, 0},
		{format.FP16, 0x1.8p-25, 1},
	} {
		dst := make([]byte, 2)
		if err := tensor.ToBytes(dst, []float32{tc.value}, tc.format); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint16(dst); got != tc.want {
			t.Errorf("format=%v: %v: got %#04x, want %#04x", tc.format, tc.value, got, tc.want)
		}
	}
}

func TestBytesErrors(t *testing.T) {
	for _, tc := range []struct {
		format        *format.Scalar
		values, bytes int
		want          string
	}{
		{format.BF16, 2, 3, "got 3 bytes, want those of 2 values of bf16"},
		{format.BF16, 2, 6, "got 6 bytes, want those of 2 values of bf16"},
		{format.FP16, 1, 0, "got 0 bytes, want those of 1 values of fp16"},
		{format.F32, 2, 4, "got 4 bytes, want those of 2 values of f32"},
		{format.E4M3, 2, 2, "element format: got e4m3, want bf16, fp16 or f32"},
	} {
		values, data := make([]float32, tc.values), make([]byte, tc.bytes)
		for name, err := range map[string]error{
			"FromBytes": tensor.FromBytes(values, data, tc.format),
			"ToBytes":   tensor.ToBytes(data, values, tc.format),
		} {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", name, err, tc.want)
			}
		}
	}
}
