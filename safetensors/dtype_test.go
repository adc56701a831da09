package safetensors

import (
	"strings"
	"testing"
)

// wantDtypes lists the dtypes of the reference implementation, in the order of its enumeration.
var wantDtypes = []struct {
	name string
	bits int
}{
	{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8},
	{"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
	{"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
	{"I32", 32}, {"U32", 32}, {"F32", 32},
	{"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
}

func TestDtypes(t *testing.T) {
	got := Dtypes()
	if len(got) != len(wantDtypes) {
		t.Fatalf("%d dtypes, want %d", len(got), len(wantDtypes))
	}
	for i, want := range wantDtypes {
		d := got[i]
		if d.String() != want.name || d.Bits() != want.bits {
			t.Errorf("dtype %d is %s of %d bits, want %s of %d", i, d, d.Bits(), want.name, want.bits)
		}
		if parsed, err := parseDtype(want.name); err != nil || parsed != d {
			t.Errorf("parseDtype(%q) = %v, %v, want %v", want.name, parsed, err, d)
		}
	}
}

func TestDtypeUnknown(t *testing.T) {
	for _, name := range []string{"", "bf16", "BF16 ", "F8_E3M4", "Dtype(0)"} {
		if d, err := parseDtype(name); err == nil {
			t.Errorf("parseDtype(%q) = %v, want an error", name, d)
		} else if !strings.Contains(err.Error(), "unknown dtype") || !strings.Contains(err.Error(), "F8_E8M0") {
			t.Errorf("parseDtype(%q): error %q does not list the known ones", name, err)
		}
	}
	for _, d := range []Dtype{0, u64 + 1, 255} {
		if d.Bits() != 0 || !strings.HasPrefix(d.String(), "Dtype(") {
			t.Errorf("Dtype(%d) claims to be %v of %d bits", uint8(d), d, d.Bits())
		}
	}
}

func TestDtypeSize(t *testing.T) {
	const huge = 1 << 62
	for _, test := range []struct {
		dtype   Dtype
		shape   []int64
		want    int64
		problem string
	}{
		{F32, nil, 4, ""},
		{F32, []int64{3, 5}, 60, ""},
		{F32, []int64{3, 0, 5}, 0, ""},
		{F4, []int64{2}, 1, ""},
		{F4, []int64{3}, 0, "12 bits"},
		{f6E2M3, []int64{4}, 3, ""},
		{f6E3M2, []int64{32, 2}, 48, ""},
		{f6E2M3, []int64{2}, 0, "12 bits"},
		{U8, []int64{1<<61 - 1}, 1<<61 - 1, ""},
		{U8, []int64{1 << 61}, 0, "overflows"},
		{u64, []int64{1 << 58}, 0, "overflows"},
		{U8, []int64{huge, huge, 0}, 0, "overflows"},
		{U8, []int64{0, huge, huge}, 0, ""},
		{U8, []int64{huge, 3, 0}, 0, ""},
	} {
		n, problem := test.dtype.size(test.shape)
		if n != test.want || (problem == "") != (test.problem == "") || !strings.Contains(problem, test.problem) {
			t.Errorf("%v%v: %d bytes, problem %q; want %d, %q", test.dtype, test.shape, n, problem, test.want, test.problem)
		}
	}
}

// TestDtypeText checks all 256 values: valid ones round-trip through their text, String never
// panics, and the text of others is an error.
func TestDtypeText(t *testing.T) {
	for i := range 256 {
		d := Dtype(i)
		text, err := d.MarshalText()
		if valid := i > 0 && i <= len(wantDtypes); !valid {
			if err == nil || !strings.HasPrefix(d.String(), "Dtype(") {
				t.Errorf("value %d: got text %q and string %q, want an error", i, text, d)
			}
			continue
		}
		var back Dtype
		if err != nil || string(text) != wantDtypes[i-1].name || back.UnmarshalText(text) != nil || back != d {
			t.Errorf("value %d: got text %q, %v, read back as %v, want %s", i, text, err, back, wantDtypes[i-1].name)
		}
	}
	d := F32
	if err := d.UnmarshalText([]byte("F33")); err == nil || d != F32 {
		t.Errorf("UnmarshalText of an unknown name: got %v, %v, want an error and no change", d, err)
	}
}
