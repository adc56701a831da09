package format_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
)

var update = flag.Bool("update", false, "rewrite testdata/*.codes")

// TestSpecsComplete checks that the tests have every row of the table.
func TestSpecsComplete(t *testing.T) {
	all := format.All()
	if len(all) != len(specs) {
		t.Fatalf("%d formats in the table, %d in the tests", len(all), len(specs))
	}
	for i, f := range all {
		if specs[i].format != f {
			t.Errorf("row %d of the table is %s, of the tests %s", i, f, specs[i].format)
		}
	}
}

func TestLimits(t *testing.T) {
	eachSpec(t, 32, func(t *testing.T, s *spec) {
		f := s.format
		stored := s.bits
		if stored == 7 {
			stored = 8
		}
		for _, tc := range []struct {
			what      string
			got, want any
		}{
			{"Bits", f.Bits(), s.bits},
			{"StoredBits", f.StoredBits(), stored},
			{"MaxCode", f.MaxCode(), s.maxCode},
			{"Max", float64(f.Max()), s.max},
			{"MaxExponent", f.MaxExponent(), int(math.Floor(math.Log2(s.max)))},
			{"SmallestNormal", float64(f.SmallestNormal()), s.minNormal},
			{"Smallest", float64(f.Smallest()), s.min},
			{"HasInf", f.HasInf(), s.inf != 0},
			{"HasNaN", f.HasNaN(), s.firstNaN != 0 || s.nanZero},
			{"HasNegativeZero", f.HasNegativeZero(), s.signed && !s.nanZero && s.exponent > 0},
			{"String", f.String(), f.Name},
		} {
			if tc.got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.what, tc.got, tc.want)
			}
		}
	})
}

// TestDecode compares the value of every code with the formula of the standard. For float32 it
// takes a sample of the codes.
func TestDecode(t *testing.T) {
	eachSpec(t, 32, func(t *testing.T, s *spec) {
		for i := uint64(0); i < 1<<s.bits; i += stride(s.bits) {
			code := uint32(i)
			got, want := float64(s.format.Decode(code)), s.value(code)
			if !same(got, want) {
				t.Fatalf("code %#x: got %v, want %v", code, got, want)
			}
			if s.format.IsNaN(code) != math.IsNaN(want) {
				t.Fatalf("IsNaN(%#x): got %v for the value %v", code, s.format.IsNaN(code), want)
			}
		}
	})
}

// stride returns the step through the codes of a format: 1 for all codes.
func stride(bits int) uint64 {
	switch bits {
	case 32:
		return 9973 * uint64(slow.Stride(1, 7))
	case 16:
		return uint64(slow.Stride(1, 7))
	}
	return 1
}

// same reports whether a and b are equal. It distinguishes zeros; NaN equals NaN.
func same(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || math.IsNaN(a) && math.IsNaN(b)
}

// TestDecodeIgnoresHighBits checks that bits above a code, such as the sign bit of a UE4M3
// byte, do not matter.
func TestDecodeIgnoresHighBits(t *testing.T) {
	eachSpec(t, 7, func(t *testing.T, s *spec) {
		codes := make([]byte, 256)
		for i := range codes {
			codes[i] = byte(i)
		}
		values := make([]float32, 256)
		s.format.DecodeSlice(values, codes)
		for i, v := range values {
			want := s.value(uint32(i) & (1<<s.bits - 1))
			if !same(float64(v), want) || !same(float64(s.format.Decode(uint32(i))), want) {
				t.Fatalf("byte %#x: got %v in a slice and %v alone, want %v", i, v, s.format.Decode(uint32(i)), want)
			}
		}
	})
}

func TestDecodeSlice(t *testing.T) {
	eachSpec(t, 8, func(t *testing.T, s *spec) {
		codes := make([]byte, 1<<s.bits)
		for i := range codes {
			codes[i] = byte(i)
		}
		const past = -123
		values := make([]float32, len(codes)+1)
		values[len(codes)] = past
		s.format.DecodeSlice(values, codes)
		for i, c := range codes {
			if want := s.value(uint32(c)); !same(float64(values[i]), want) {
				t.Fatalf("code %#x: got %v, want %v", c, values[i], want)
			}
		}
		if values[len(codes)] != past {
			t.Errorf("DecodeSlice wrote past the last code")
		}
	})
}

// TestCodes compares the value of every code with the tables in testdata, which document them.
func TestCodes(t *testing.T) {
	eachSpec(t, 8, func(t *testing.T, s *spec) {
		var got bytes.Buffer
		fmt.Fprintf(&got, "# Every code of %s and its value.\n", s.format)
		fmt.Fprintf(&got, "# Rewrite with: go test ./format -run TestCodes -update\n")
		for code := range uint32(1) << s.bits {
			fmt.Fprintf(&got, "0x%02x %s\n", code, strconv.FormatFloat(float64(s.format.Decode(code)), 'g', -1, 32))
		}
		name := filepath.Join("testdata", s.format.Name+".codes")
		if *update {
			if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			if err := os.WriteFile(name+".got", got.Bytes(), 0o644); err != nil {
				t.Error(err)
			}
			t.Errorf("the codes differ from %s: compare %s.got with it", name, name)
		}
	})
}
