package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// oneTensor returns a file in memory with one tensor, "x".
func oneTensor(t *testing.T, d safetensors.Dtype, shape []int64, data []byte) *safetensors.File {
	t.Helper()
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: "x", Dtype: d, Shape: shape}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(slices.Clone(layout.HeaderBytes()), data...)
	f, err := safetensors.NewFile(bytes.NewReader(whole), int64(len(whole)), "test")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFloats reads four elements of every dtype, whose bytes were typed by hand from the
// definitions of the formats. Every dtype must be in the table.
func TestFloats(t *testing.T) {
	nan := float32(math.NaN())
	missing := map[safetensors.Dtype]bool{}
	for _, d := range safetensors.Dtypes() {
		missing[d] = true
	}
	for _, tc := range []struct {
		dtype string
		data  []byte
		want  []float32 // nil: not a floating-point dtype
	}{
		{"F4", []byte{0x21, 0xf7}, []float32{0.5, 1, 6, -6}},
		{"F6_E2M3", []byte{0x08 | 0x01<<6, 0x3f << 4 & 0xf0, 0x1f<<2 | 0x3}, []float32{1, 0.125, -7.5, 7.5}},
		{"F6_E3M2", []byte{0x0c | 0x01<<6, 0x3f << 4 & 0xf0, 0x1f<<2 | 0x3}, []float32{1, 0.0625, -28, 28}},
		{"F8_E5M2", []byte{0x3c, 0xc0, 0x7b, 0x7c}, []float32{1, -2, 57344, float32(math.Inf(1))}},
		{"F8_E4M3", []byte{0x38, 0xc0, 0x7e, 0x7f}, []float32{1, -2, 448, nan}},
		{"F8_E8M0", []byte{127, 0, 254, 255}, []float32{1, 0x1p-127, 0x1p127, nan}},
		{"F8_E4M3FNUZ", []byte{0x40, 0xc8, 0x7f, 0x80}, []float32{1, -2, 240, nan}},
		{"F8_E5M2FNUZ", []byte{0x40, 0xc4, 0x7f, 0x80}, []float32{1, -2, 57344, nan}},
		{"F16", []byte{0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b, 0x01, 0x00}, []float32{1, -2, 65504, 0x1p-24}},
		{"BF16", []byte{0x80, 0x3f, 0x00, 0xc0, 0x7f, 0x7f, 0x01, 0x00}, []float32{1, -2, 0x1.fep127, 0x1p-133}},
		{"F32", f32Bytes(1, -2, math.MaxFloat32, nan), []float32{1, -2, math.MaxFloat32, nan}},
		{"F64", f64Bytes(1+0x1p-24, 1+0x3p-24, 1e300, -0x1p-149), []float32{1, 1 + 0x2p-23, float32(math.Inf(1)), -0x1p-149}},
		{"BOOL", make([]byte, 4), nil}, {"U8", make([]byte, 4), nil}, {"I8", make([]byte, 4), nil},
		{"I16", make([]byte, 8), nil}, {"U16", make([]byte, 8), nil}, {"I32", make([]byte, 16), nil},
		{"U32", make([]byte, 16), nil}, {"C64", make([]byte, 32), nil}, {"I64", make([]byte, 32), nil}, {"U64", make([]byte, 32), nil},
	} {
		var d safetensors.Dtype
		err := d.UnmarshalText([]byte(tc.dtype))
		if err != nil {
			t.Fatal(err)
		}
		delete(missing, d)
		got, err := oneTensor(t, d, []int64{2, 2}, tc.data).Floats("x")
		if tc.want == nil {
			want := `test: tensor "x": got dtype ` + tc.dtype + ", want a floating-point dtype: read its bytes instead"
			if err == nil || err.Error() != want {
				t.Errorf("%s: got %v, %v, want the error %q", tc.dtype, got, err, want)
			}
			continue
		}
		same := func(a, b float32) bool { return a == b || a != a && b != b }
		if err != nil || !slices.EqualFunc(got, tc.want, same) {
			t.Errorf("%s: got %v, %v, want %v", tc.dtype, got, err, tc.want)
		}
	}
	if len(missing) > 0 {
		t.Errorf("dtypes that this test does not read: %v", missing)
	}
}

func f32Bytes(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func f64Bytes(values ...float64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// TestFloatsLong reads tensors of more elements than the read buffer holds.
func TestFloatsLong(t *testing.T) {
	const n = 3<<18 + 44
	for _, tc := range []struct {
		dtype string
		bits  int
		one   []byte // the codes of 1, -1, 1, -1
	}{
		{"F4", 4, []byte{0xa2, 0xa2}}, {"F6_E2M3", 6, []byte{0x08, 0x8a, 0xa0}}, {"F8_E4M3", 8, []byte{0x38, 0xb8, 0x38, 0xb8}},
		{"BF16", 16, []byte{0x80, 0x3f, 0x80, 0xbf, 0x80, 0x3f, 0x80, 0xbf}}, {"F32", 32, f32Bytes(1, -1, 1, -1)},
		{"F64", 64, f64Bytes(1, -1, 1, -1)},
	} {
		var d safetensors.Dtype
		err := d.UnmarshalText([]byte(tc.dtype))
		if err != nil {
			t.Fatal(err)
		}
		got, err := oneTensor(t, d, []int64{n}, bytes.Repeat(tc.one, n/4)).Floats("x")
		if err != nil || len(got) != n {
			t.Fatalf("%s: got %d values, %v, want %d", tc.dtype, len(got), err, n)
		}
		for i, v := range got {
			if want := float32(1 - 2*(i%2)); v != want {
				t.Fatalf("%s: element %d: got %v, want %v", tc.dtype, i, v, want)
			}
		}
	}
}

func TestFloatsErrors(t *testing.T) {
	f := oneTensor(t, safetensors.BF16, []int64{0, 3}, nil)
	if got, err := f.Floats("x"); err != nil || got == nil || len(got) != 0 {
		t.Errorf("empty tensor: got %v, %v", got, err)
	}
	if _, err := f.Floats("y"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `test: tensor "y"`) {
		t.Errorf("missing tensor: got %v, want fs.ErrNotExist", err)
	}
}

// TestTruncated checks that a file of any shorter length is io.ErrUnexpectedEOF, and that other
// damage is not.
func TestTruncated(t *testing.T) {
	layout, err := safetensors.NewLayout([]safetensors.Spec{{Name: "x", Dtype: safetensors.BF16, Shape: []int64{4}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(slices.Clone(layout.HeaderBytes()), make([]byte, 8)...)
	for n := range whole {
		if _, err := safetensors.NewFile(bytes.NewReader(whole[:n]), int64(n), "test"); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: got %v, want io.ErrUnexpectedEOF", n, len(whole), err)
		}
	}
	f, err := safetensors.NewFile(bytes.NewReader(whole[:len(whole)-1]), int64(len(whole)), "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Floats("x"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that became shorter: got %v, want io.ErrUnexpectedEOF", err)
	}
	longer := append(slices.Clone(whole), 0)
	if _, err := safetensors.NewFile(bytes.NewReader(longer), int64(len(longer)), "test"); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a byte more: got %v, want another error", err)
	}
}
