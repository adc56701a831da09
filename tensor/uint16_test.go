package tensor_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestUint16 decodes all codes of BF16 and FP16 and encodes their values. Both must agree with the
// codec of package format and with FromBytes and ToBytes.
func TestUint16(t *testing.T) {
	codes := make([]uint16, 1<<16)
	raw := make([]byte, 2*len(codes))
	for i := range codes {
		codes[i] = uint16(i)
		binary.LittleEndian.PutUint16(raw[2*i:], uint16(i))
	}
	for _, f := range []*format.Scalar{format.BF16, format.FP16} {
		values, fromBytes := make([]float32, len(codes)), make([]float32, len(codes))
		if err := tensor.FromUint16(values, codes, f); err != nil {
			t.Fatal(err)
		}
		if err := tensor.FromBytes(fromBytes, raw, f); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if want := f.Decode(uint32(i)); v != want && !(v != v && want != want) || math.Float32bits(v) != math.Float32bits(fromBytes[i]) {
				t.Fatalf("%s code %#04x: got %v, want %v", f, i, v, want)
			}
		}
		got := make([]uint16, len(codes))
		if err := tensor.ToUint16(got, values, f); err != nil {
			t.Fatal(err)
		}
		for i, c := range got {
			if nan := values[i] != values[i]; !nan && c != codes[i] || nan && !f.IsNaN(uint32(c)) {
				t.Fatalf("%s: round trip of %#04x: got %#04x", f, codes[i], c)
			}
		}
	}
	rounded := make([]uint16, 3)
	if err := tensor.ToUint16(rounded, []float32{1 + 0x1p-8, 1 + 0x3p-8, math.MaxFloat32}, format.BF16); err != nil || rounded[0] != 0x3f80 ||
		rounded[1] != 0x3f82 || rounded[2] != 0x7f80 {
		t.Errorf("rounding: got %#04x, %v, want 3f80 3f82 7f80", rounded, err)
	}
}

func TestUint16Errors(t *testing.T) {
	for want, err := range map[string]error{
		"got f32, want bf16 or fp16":               tensor.FromUint16(make([]float32, 1), make([]uint16, 1), format.F32),
		"got nil, want bf16 or fp16":               tensor.ToUint16(make([]uint16, 1), make([]float32, 1), nil),
		"got 3 codes of bf16 for 2 values, want":   tensor.FromUint16(make([]float32, 2), make([]uint16, 3), format.BF16),
		"got 1 codes of fp16 for 2 values, want":   tensor.ToUint16(make([]uint16, 1), make([]float32, 2), format.FP16),
		"element format: got e4m3, want bf16 or f": tensor.ToUint16(nil, nil, format.E4M3),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := tensor.FromUint16(nil, nil, format.BF16); err != nil {
		t.Errorf("no codes: got %v", err)
	}
}
