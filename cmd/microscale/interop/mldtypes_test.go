package interop

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestMLDtypes compares every type of ml_dtypes, and NumPy's float16: all codes
// decoded, and millions of float32 encoded.
//
// ml_dtypes casts to nearest even and overflows to infinity or NaN. It keeps
// the sign of a NaN where the format has one; FP4 and FP6 turn NaN into the zero
// of the opposite sign. The formats of ours that it does not have are INT8 as an
// MX element, UE4M3, UE5M3 and F32; its integers are not floating-point types like our S4 and S8.
func TestMLDtypes(t *testing.T) {
	interpreter := python(t, "ml_dtypes==0.6.0", "numpy==2.4.6")
	dir := t.TempDir()
	inputs := castInputs()
	data := make([]byte, 4*len(inputs))
	for i, b := range inputs {
		binary.LittleEndian.PutUint32(data[4*i:], b)
	}
	if err := os.WriteFile(filepath.Join(dir, "inputs.f32"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	script(t, interpreter, "cast.py", dir)

	seen := map[*format.Scalar]bool{}
	for _, name := range strings.Fields(string(read(t, dir, "types.txt"))) {
		t.Run("type="+name, func(t *testing.T) {
			f, err := format.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			seen[f] = true
			compareDecoded(t, f, read(t, dir, name+".decoded"))
			compareEncoded(t, f, inputs, read(t, dir, name+".encoded"))
		})
	}
	for _, f := range format.All() {
		absent := slices.Contains([]*format.Scalar{format.INT8, format.S4, format.S8, format.UE4M3, format.UE5M3, format.F32}, f)
		if seen[f] == absent {
			t.Errorf("%s: compared is %v, not in ml_dtypes is %v", f, seen[f], absent)
		}
	}
}

// castInputs returns float32 patterns: all of bfloat16 widened, a prime stride over all, and
// the neighbors of every value and midpoint of every format.
func castInputs() []uint32 {
	var inputs []uint32
	for i := range uint32(1) << 16 {
		inputs = append(inputs, i<<16)
	}
	for p := uint64(0); p < 1<<32; p += 2003 {
		inputs = append(inputs, uint32(p))
	}
	for _, f := range format.All() {
		if f.Bits() > 16 {
			continue
		}
		step := 1
		if f.Bits() > 8 {
			step = 7
		}
		for code := 0; code < 1<<f.Bits(); code += step {
			low, high := f.Decode(uint32(code)), f.Decode(uint32(code)+1)
			middle := math.Float32bits(low/2 + high/2)
			for _, p := range []uint32{math.Float32bits(low), middle} {
				inputs = append(inputs, p-1, p, p+1)
			}
		}
	}
	return inputs
}

func compareDecoded(t *testing.T, f *format.Scalar, data []byte) {
	if len(data) != 4<<f.Bits() {
		t.Fatalf("%d bytes for the values of %d codes", len(data), 1<<f.Bits())
	}
	for code := range uint32(1) << f.Bits() {
		got := f.Decode(code)
		want := math.Float32frombits(binary.LittleEndian.Uint32(data[4*code:]))
		if got != got && want != want {
			continue // a NaN is a NaN: ml_dtypes carries sign and payload along
		}
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("code %#x decodes to %v, with ml_dtypes to %v", code, got, want)
		}
	}
}

func compareEncoded(t *testing.T, f *format.Scalar, inputs []uint32, data []byte) {
	size := (f.Bits() + 7) / 8
	if len(data) != size*len(inputs) {
		t.Fatalf("%d bytes for the codes of %d inputs", len(data), len(inputs))
	}
	c := format.Conversion{Overflow: format.NonSaturating, NaN: format.KeepSign}
	if !f.HasNaN() {
		c.NaN = format.OppositeZero
	}
	for i, bits := range inputs {
		want := uint32(data[size*i])
		if size == 2 {
			want = uint32(binary.LittleEndian.Uint16(data[2*i:]))
		}
		x := math.Float32frombits(bits)
		got := f.EncodeWith(x, c, 0)
		if other := f.EncodeWith(x, format.Conversion{Overflow: format.NonSaturating}, 0); x == x && other != got {
			t.Fatalf("%v (%#08x) becomes %#x, but %#x with the canonical NaN for numbers that are NaN", x, bits, got, other)
		}
		if expected := known(f, x, got); want != expected {
			t.Fatalf("%v (%#08x) becomes %#x, with ml_dtypes %#x, where %#x was expected of it", x, bits, got, want, expected)
		}
	}
}

// known returns the code of ml_dtypes for x if ours is code: the same, except for the
// differences listed here.
func known(f *format.Scalar, x float32, code uint32) uint32 {
	switch {
	// E8M0 is a scale here: the sign is ignored, the nearest scale is chosen, and zero becomes
	// 2^-127. ml_dtypes encodes zero and negative numbers as NaN.
	case f == format.E8M0 && x <= 0:
		return 0xff
	// Between its two smallest values, 2^-127 and 2^-126, ml_dtypes always rounds up; we round
	// to nearest.
	case f == format.E8M0 && x > 0x1p-127 && x < 0x1.8p-127:
		return 1
	// IEEE formats have many NaNs. Ours is all ones, that of ml_dtypes the quiet one without
	// payload, and NumPy's float16 keeps the top bits of the payload.
	case f == format.FP16 && x != x:
		payload := math.Float32bits(x) >> 13 & 0x3ff
		return code&0x8000 | 0x7c00 | max(payload, 1)
	case f.HasInf() && x != x:
		sign := code & (1 << (f.Bits() - 1))
		return sign | (f.MaxCode() + 1) | 1<<(f.Mantissa-1)
	}
	return code
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
