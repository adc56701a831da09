package format_test

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestLookup finds a format by what PyTorch, safetensors, ml_dtypes, NVIDIA and
// common speech call it.
func TestLookup(t *testing.T) {
	for want, names := range map[*format.Scalar]string{
		format.E4M3:        "e4m3 E4M3 e4m3fn float8_e4m3fn torch.float8_e4m3fn F8_E4M3 fp8_e4m3",
		format.E5M2:        "e5m2 float8_e5m2 torch.float8_e5m2 F8_E5M2 fp8_e5m2",
		format.E3M2:        "e3m2 e3m2fn float6_e3m2fn F6_E3M2 fp6_e3m2",
		format.E2M3:        "e2m3 e2m3fn float6_e2m3fn F6_E2M3 fp6_e2m3",
		format.E2M1:        "e2m1 float4_e2m1fn float4_e2m1fn_x2 torch.float4_e2m1fn_x2 F4 fp4 FP4_E2M1",
		format.INT8:        "int8 INT8 i8 I8",
		format.E8M0:        "e8m0 ue8m0 UE8M0 float8_e8m0fnu torch.float8_e8m0fnu F8_E8M0",
		format.UE4M3:       "ue4m3 UE4M3",
		format.E4M3FNUZ:    "e4m3fnuz float8_e4m3fnuz torch.float8_e4m3fnuz F8_E4M3FNUZ",
		format.E5M2FNUZ:    "e5m2fnuz float8_e5m2fnuz torch.float8_e5m2fnuz F8_E5M2FNUZ",
		format.E4M3B11FNUZ: "e4m3b11fnuz float8_e4m3b11fnuz",
		format.E4M3IEEE:    "e4m3ieee float8_e4m3",
		format.E3M4:        "e3m4 float8_e3m4",
		format.BF16:        "bf16 BF16 bfloat16 torch.bfloat16",
		format.FP16:        "fp16 f16 F16 float16 half torch.float16",
		format.F32:         "f32 F32 fp32 float32 float torch.float32",
	} {
		for _, name := range strings.Fields(names) {
			if got, err := format.Lookup(name); got != want || err != nil {
				t.Errorf("Lookup(%q) is %v, %v; want %v", name, got, err, want)
			}
		}
	}
}

// TestNamesUnique: no two rows share a name, and every name in the table is found.
func TestNamesUnique(t *testing.T) {
	owner := map[string]*format.Scalar{}
	for _, f := range format.All() {
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			if o := owner[name]; o != nil {
				t.Errorf("%q names both %s and %s", name, o, f)
			}
			owner[name] = f
			if got, err := format.Lookup(strings.ToUpper(name)); got != f || err != nil {
				t.Errorf("Lookup(%q) is %v, %v; want %v", strings.ToUpper(name), got, err, f)
			}
		}
	}
}

func TestLookupUnknown(t *testing.T) {
	for _, name := range []string{"", "e4m4", "mxfp4", "e4m3 "} {
		if _, err := format.Lookup(name); err == nil || !strings.Contains(err.Error(), "use one of e4m3, e5m2") {
			t.Errorf("Lookup(%q) gives the error %v", name, err)
		}
	}
}

// TestAllIsACopy: a caller cannot change the table.
func TestAllIsACopy(t *testing.T) {
	format.All()[0] = nil
	if format.All()[0] != format.E4M3 {
		t.Error("All returned the table itself")
	}
}

func TestParseRounding(t *testing.T) {
	for name, want := range map[string]format.Rounding{
		"nearest-even": format.NearestEven, "half-away": format.HalfAway, "half-toward-zero": format.HalfTowardZero,
		"toward-zero": format.TowardZero, "up": format.Up, "stochastic": format.Stochastic, "Nearest-Even": format.NearestEven,
	} {
		got, err := format.ParseRounding(name)
		if got != want || err != nil || got.String() != strings.ToLower(name) {
			t.Errorf("ParseRounding(%q) is %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := format.ParseRounding("down"); err == nil || !strings.Contains(err.Error(), `unknown rounding "down": use one of nearest-even`) {
		t.Errorf("ParseRounding of an unknown name gives the error %v", err)
	}
}

func TestParseOverflow(t *testing.T) {
	for name, want := range map[string]format.Overflow{
		"saturate": format.Saturate, "satfinite": format.Saturate, "ofp8-sat": format.Saturate,
		"nonsaturating": format.NonSaturating, "ofp8": format.NonSaturating, "OFP8": format.NonSaturating,
		"saturate-finite": format.SaturateFinite,
	} {
		if got, err := format.ParseOverflow(name); got != want || err != nil {
			t.Errorf("ParseOverflow(%q) is %v, %v; want %v", name, got, err, want)
		}
	}
	for _, o := range overflows {
		if got, err := format.ParseOverflow(o.String()); got != o || err != nil {
			t.Errorf("ParseOverflow(%q) is %v, %v", o, got, err)
		}
	}
	if _, err := format.ParseOverflow("wrap"); err == nil || !strings.Contains(err.Error(), `unknown overflow "wrap": use one of saturate`) {
		t.Errorf("ParseOverflow of an unknown name gives the error %v", err)
	}
}
