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
)

var update = flag.Bool("update", false, "rewrite testdata/*.codes")

// TestSpecsComplete keeps a new row of the table from going untested.
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
			{"String", f.String(), f.Name},
		} {
			if tc.got != tc.want {
				t.Errorf("%s is %v, want %v", tc.what, tc.got, tc.want)
			}
		}
	})
}

// TestDecode compares every code of every format of at most 16 bits, and a
// stride of float32, with the formula of the standard.
func TestDecode(t *testing.T) {
	eachSpec(t, 32, func(t *testing.T, s *spec) {
		for i := uint64(0); i < 1<<s.bits; i += stride(s.bits) {
			code := uint32(i)
			got, want := float64(s.format.Decode(code)), s.value(code)
			if !same(got, want) {
				t.Fatalf("code %#x decodes to %v, want %v", code, got, want)
			}
			if s.format.IsNaN(code) != math.IsNaN(want) {
				t.Fatalf("IsNaN(%#x) is %v, value is %v", code, s.format.IsNaN(code), want)
			}
		}
	})
}

// stride is the step through the codes of a format: all of them, but for float32.
func stride(bits int) uint64 {
	if bits == 32 {
		return 9973
	}
	return 1
}

// same is equality that tells zeros apart and finds NaN equal to NaN.
func same(a, b float64) bool {
	return a == b && math.Signbit(a) == math.Signbit(b) || math.IsNaN(a) && math.IsNaN(b)
}

// TestDecodeIgnoresHighBits: a UE4M3 byte may carry a sign, a nibble its neighbor.
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
				t.Fatalf("byte %#x decodes to %v in a slice and to %v alone, want %v", i, v, s.format.Decode(uint32(i)), want)
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
				t.Fatalf("code %#x decodes to %v, want %v", c, values[i], want)
			}
		}
		if values[len(codes)] != past {
			t.Errorf("wrote past the codes it was given")
		}
	})
}

// TestCodes keeps the table of every code in testdata, where a reader finds it
// and a change of any value shows in the diff.
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
