package format_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestLookup looks formats up by the names of PyTorch, safetensors, ml_dtypes and NVIDIA.
func TestLookup(t *testing.T) {
	for want, names := range map[*format.Scalar]string{
		format.E4M3:     "e4m3 E4M3 e4m3fn float8_e4m3fn torch.float8_e4m3fn F8_E4M3 fp8_e4m3",
		format.E5M2:     "e5m2 float8_e5m2 torch.float8_e5m2 F8_E5M2 fp8_e5m2",
		format.E3M2:     "e3m2 e3m2fn float6_e3m2fn F6_E3M2 fp6_e3m2",
		format.E2M3:     "e2m3 e2m3fn float6_e2m3fn F6_E2M3 fp6_e2m3",
		format.E2M1:     "e2m1 float4_e2m1fn float4_e2m1fn_x2 torch.float4_e2m1fn_x2 F4 fp4 FP4_E2M1",
		format.INT8:     "int8 INT8 i8 I8",
		format.S4:       "s4 S4 int4 i4",
		format.S8:       "s8 S8 torch.int8",
		format.E8M0:     "e8m0 ue8m0 UE8M0 float8_e8m0fnu torch.float8_e8m0fnu F8_E8M0",
		format.UE4M3:    "ue4m3 UE4M3",
		format.UE5M3:    "ue5m3 e5m3 fp8_e5m3",
		format.E4M3FNUZ: "e4m3fnuz float8_e4m3fnuz torch.float8_e4m3fnuz F8_E4M3FNUZ",
		format.E5M2FNUZ: "e5m2fnuz float8_e5m2fnuz torch.float8_e5m2fnuz F8_E5M2FNUZ",
		e4m3b11fnuz:     "e4m3b11fnuz float8_e4m3b11fnuz",
		e4m3ieee:        "e4m3ieee float8_e4m3",
		e3m4:            "e3m4 float8_e3m4",
		format.BF16:     "bf16 BF16 bfloat16 torch.bfloat16",
		format.FP16:     "fp16 f16 F16 float16 half torch.float16",
		format.F32:      "f32 F32 fp32 float32 float torch.float32",
	} {
		for _, name := range strings.Fields(names) {
			if got, err := format.Lookup(name); got != want || err != nil {
				t.Errorf("Lookup(%q): got %v, %v, want %v", name, got, err, want)
			}
		}
	}
}

// TestNamesUnique checks that no two rows share a name, and that Lookup finds every name.
func TestNamesUnique(t *testing.T) {
	owner := map[string]*format.Scalar{}
	for _, f := range format.All() {
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			if o := owner[name]; o != nil {
				t.Errorf("%q names both %s and %s", name, o, f)
			}
			owner[name] = f
			if got, err := format.Lookup(strings.ToUpper(name)); got != f || err != nil {
				t.Errorf("Lookup(%q): got %v, %v, want %v", strings.ToUpper(name), got, err, f)
			}
		}
	}
}

func TestLookupUnknown(t *testing.T) {
	for name, want := range map[string]string{"": "use one of e4m3, e5m2", "mxfp4": "use one of e4m3, e5m2", "e4m3 ": "did you mean e4m3?"} {
		if _, err := format.Lookup(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): got the error %v, want %s", name, err, want)
		}
	}
}

// TestAllIsACopy checks that a caller cannot change the table.
func TestAllIsACopy(t *testing.T) {
	format.All()[0] = nil
	if format.All()[0] != format.E4M3 {
		t.Error("All returned the table itself")
	}
}

// An enumeration is the interface of Rounding, Overflow and NaN.
type enumeration interface {
	fmt.Stringer
	encoding.TextMarshaler
}

// checkEnumeration checks the 256 values of an enumeration of which the first are named: those
// round-trip through their text, in any case. All others have a distinct String, and no text.
func checkEnumeration[E enumeration](t *testing.T, named []string, value func(byte) E, parse func(string) (E, error)) {
	seen := map[string]int{}
	for i := range 256 {
		v := value(byte(i))
		if first, twice := seen[v.String()]; twice {
			t.Errorf("values %d and %d: String of both is %q", first, i, v)
		}
		seen[v.String()] = i
		text, err := v.MarshalText()
		if i >= len(named) {
			if want := fmt.Sprintf("%s(%d)", reflect.TypeFor[E]().Name(), i); v.String() != want {
				t.Errorf("String of value %d: got %q, want %q", i, v, want)
			}
			if err == nil {
				t.Errorf("MarshalText of value %d: got %q, want an error", i, text)
			}
			if _, err := parse(v.String()); err == nil {
				t.Errorf("UnmarshalText of %q: got no error", v)
			}
			continue
		}
		if string(text) != named[i] || v.String() != named[i] || err != nil {
			t.Errorf("value %d: got text %q and string %q, %v, want %q", i, text, v, err, named[i])
		}
		for _, spelling := range []string{named[i], strings.ToUpper(named[i])} {
			if back, err := parse(spelling); err != nil || back.String() != named[i] {
				t.Errorf("UnmarshalText of %q: got %v, %v, want %v", spelling, back, err, v)
			}
		}
	}
	for _, bad := range []string{"", "down", "sideways"} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q: use one of %s", bad, named[0])) {
			t.Errorf("UnmarshalText of %q: got the error %v, want one that lists the names", bad, err)
		}
	}
}

// unmarshal returns a parser by UnmarshalText that checks that errors leave the value unchanged.
func unmarshal[E comparable, P interface {
	*E
	encoding.TextUnmarshaler
}](t *testing.T, other E) func(string) (E, error) {
	return func(text string) (E, error) {
		v := other
		err := P(&v).UnmarshalText([]byte(text))
		if err != nil && v != other {
			t.Errorf("UnmarshalText of %q: the error %v changed the value to %v", text, err, v)
		}
		return v, err
	}
}

func TestEnumerations(t *testing.T) {
	checkEnumeration(t, []string{"nearest-even", "half-away", "half-toward-zero", "toward-zero", "up", "stochastic"},
		func(b byte) format.Rounding { return format.Rounding(b) }, unmarshal(t, format.Rounding(99)))
	checkEnumeration(t, []string{"saturate", "nonsaturating", "saturate-finite"},
		func(b byte) format.Overflow { return format.Overflow(b) }, unmarshal(t, format.Overflow(99)))
	checkEnumeration(t, []string{"canonical", "keep-sign", "unchecked", "opposite-zero"},
		func(b byte) format.NaN { return format.NaN(b) }, unmarshal(t, format.NaN(99)))
	for name, want := range map[string]format.Overflow{
		"satfinite": format.Saturate, "ofp8-sat": format.Saturate, "ofp8": format.NonSaturating, "OFP8": format.NonSaturating,
	} {
		var got format.Overflow
		if err := got.UnmarshalText([]byte(name)); err != nil || got != want {
			t.Errorf("overflow %q: got %v, %v, want %v", name, got, err, want)
		}
	}
}

// TestConversionJSON checks that a Conversion is readable JSON.
func TestConversionJSON(t *testing.T) {
	want := format.Conversion{Rounding: format.Stochastic, Overflow: format.SaturateFinite, NaN: format.KeepSign}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `{"Rounding":"stochastic","Overflow":"saturate-finite","NaN":"keep-sign"}` {
		t.Errorf("got %s, %v", text, err)
	}
	var got format.Conversion
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("read back: got %+v, %v, want %+v", got, err, want)
	}
}
