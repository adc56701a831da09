package cpu

import (
	"slices"
	"strings"
	"testing"
)

func TestParseTier(t *testing.T) {
	for _, tier := range AllTiers() {
		name := tier.String()
		if got, err := ParseTier(strings.ToUpper(name)); err != nil || got != tier {
			t.Errorf("ParseTier(%q): got %v, %v", name, got, err)
		}
	}
	if _, err := ParseTier("sse"); err == nil {
		t.Error("ParseTier(sse): got no error")
	}
}

// TestTiers checks that the tiers are in order, end with Plain, and are unique.
func TestTiers(t *testing.T) {
	list := Tiers()
	t.Logf("tiers: %v", list)
	for i := 1; i < len(list); i++ {
		if list[i] >= list[i-1] {
			t.Errorf("got %v after %v", list[i], list[i-1])
		}
	}
	if list[len(list)-1] != Plain {
		t.Errorf("got %v, want plain last", list)
	}
	if Best() != list[0] {
		t.Errorf("Best() before Force: got %v, want %v", Best(), list[0])
	}
}

func TestForce(t *testing.T) {
	defer func(best Tier) { _ = Force(best) }(Best())
	have := map[Tier]bool{}
	for _, tier := range Tiers() {
		have[tier] = true
	}
	for _, tier := range AllTiers() {
		if Has(tier.Set()) != have[tier] {
			t.Errorf("Has(%v): got %v", tier, Has(tier.Set()))
		}
		before := Best()
		err := Force(tier)
		want := before
		if have[tier] {
			want = tier
		}
		if (err == nil) != have[tier] || Best() != want {
			t.Errorf("Force(%v): got %v and Best() %v, want %v", tier, err, Best(), want)
		}
		allowed := want.Set()
		if want == Tiers()[0] {
			allowed = Detected() // all that no tier has, too
		}
		for _, f := range AllFeatures().Features() {
			if Uses(f) != allowed.Has(f) {
				t.Errorf("Uses(%v) after Force(%v): got %v", f, want, Uses(f))
			}
		}
	}
}

// TestTiersOf checks the tiers of processors by their features.
func TestTiersOf(t *testing.T) {
	const haswell = X86AVX | X86AVX2 | X86FMA | X86F16C | X86BMI2 | X86POPCNT
	const skylake = haswell | X86AVX512F | X86AVX512BW | X86AVX512DQ | X86AVX512VL
	for _, tc := range []struct {
		processor string
		features  Set
		want      []Tier
	}{
		{"Nehalem", X86POPCNT, []Tier{Plain}},
		{"Sandy Bridge", X86AVX | X86POPCNT, []Tier{Plain}},
		{"Haswell", haswell, []Tier{AVX2, Plain}},
		{"Alder Lake", haswell | X86AVXVNNI, []Tier{AVXVNNI, AVX2, Plain}},
		{"Knights Landing", haswell | X86AVX512F, []Tier{AVX2, Plain}},
		{"Skylake-X", skylake, []Tier{AVX512F, AVX2, Plain}},
		{"Cascade Lake", skylake | X86AVX512VNNI, []Tier{AVX512VNNI, AVX512F, AVX2, Plain}},
		{"Cooper Lake", skylake | X86AVX512VNNI | X86AVX512BF16, []Tier{AVX512VNNI, AVX512F, AVX2, Plain}},
		{"Cannon Lake", skylake | X86AVX512VBMI, []Tier{AVX512F, AVX2, Plain}},
		{"Ice Lake", skylake | X86AVX512VNNI | X86AVX512VBMI, []Tier{AVX512VBMI, AVX512VNNI, AVX512F, AVX2, Plain}},
		{"Zen 4", avx512, []Tier{AVX512, AVX512VBMI, AVX512VNNI, AVX512F, AVX2, Plain}},
		{"Zen 5", avx512 | X86AVXVNNI, []Tier{AVX512, AVX512VBMI, AVX512VNNI, AVX512F, AVXVNNI, AVX2, Plain}},
		{"arm64", ARMASIMD, []Tier{NEON, Plain}},
		{"Apple M1", ARMASIMD | ARMDotProd, []Tier{NEONDot, NEON, Plain}},
		{"arm64 with BF16 alone", ARMASIMD | ARMDotProd | ARMBF16, []Tier{NEONBF16, NEONDot, NEON, Plain}},
		{"arm64 without BF16", ARMASIMD | ARMDotProd | ARMI8MM, []Tier{NEONDot, NEON, Plain}},
		{"Graviton3", ARMASIMD | ARMDotProd | ARMBF16 | ARMI8MM, []Tier{NEONI8MM, NEONBF16, NEONDot, NEON, Plain}},
	} {
		if got := tiersOf(tc.features); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.processor, got, tc.want)
		}
	}
}

// TestTierOf checks that a tier is the first that has what kernels need.
func TestTierOf(t *testing.T) {
	for _, tier := range AllTiers() {
		if got := TierOf(tier.Set()); got != tier {
			t.Errorf("TierOf(the features of %v): got %v", tier, got)
		}
	}
	if got := TierOf(X86AVX | X86FMA); got != AVX2 {
		t.Errorf("got %v, want avx2", got)
	}
}

// TestSetText checks the names of features.
func TestSetText(t *testing.T) {
	if got := (X86AVX512F | X86AVX2).String(); got != "avx2 avx512f" {
		t.Errorf("got %q", got)
	}
	if got := (X86AVX512F | X86AVX2).GoString(); got != "cpu.X86AVX2 | cpu.X86AVX512F" {
		t.Errorf("got %q", got)
	}
	if n := len(AllFeatures().Features()); n != len(features) {
		t.Errorf("got %d features, want %d", n, len(features))
	}
}
