package numbers

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// TestRuleText checks, for every MX format and rule, that the text about the scale is
// consistent with the quantizer: for amaxes at the mantissas where rules change, and for
// random ones.
func TestRuleText(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var amaxes []float32
	for range 300 {
		amaxes = append(amaxes, math.Float32frombits(uint32(1+random.IntN(253))<<23|random.Uint32()&(1<<23-1)))
	}
	for e := -126; e < -100; e++ { // scales around the minimum
		amaxes = append(amaxes, float32(math.Ldexp(1, e)), float32(math.Ldexp(1.99, e)))
	}
	for _, m := range []float32{1, 1.5, 1.75, 1.875, 1.9375, 1.96875, 1.984375, 1.9921875, 2} {
		amaxes = append(amaxes, m, math.Nextafter32(m, 0), math.Nextafter32(m, 4))
	}
	p := profile.Default()
	for _, f := range quant.Formats() {
		if f.Scale != format.E8M0 {
			continue
		}
		for _, r := range quant.ScaleRules() {
			t.Run("format="+f.Name+"/rule="+r.String(), func(t *testing.T) {
				for _, amax := range amaxes {
					e, err := explain(p, f, &r, []float32{amax}, nil)
					if err != nil {
						t.Fatal(err)
					}
					want := exponentOf(amax) - f.Element.MaxExponent()
					text := ruleText(&e.quantizer, &e.Blocks[0])
					if strings.Contains(text, ", doubled: ") {
						want++
					}
					if strings.Contains(text, ", halved: ") {
						want--
					}
					if limited := strings.Contains(text, "; the minimum scale is "); limited != (want < -format.E8M0.Bias) {
						t.Errorf("amax %v: the scale is 2^%d before the minimum, but it is said: %s", amax, want, text)
					}
					want = max(want, -format.E8M0.Bias)
					if got := exponentOf(e.Blocks[0].scale); got != want {
						t.Errorf("amax %v (%#x): the scale is 2^%d, but it is said: %s", amax, math.Float32bits(amax), got, text)
					}
				}
			})
		}
	}
}

// TestExplain checks for all profiles and formats that the code of every element decodes
// to the printed value and is next to the quotient.
func TestExplain(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	values := make([]float32, 70)
	for i := range values {
		values[i] = float32(random.NormFloat64() * math.Exp2(float64(random.IntN(12))))
	}
	for _, p := range profile.All() {
		for _, f := range quant.Formats() {
			if !f.Scaled() {
				continue
			}
			t.Run("profile="+p.Name+"/format="+f.Name, func(t *testing.T) {
				e, err := explain(p, f, nil, values, nil)
				if err != nil {
					t.Fatal(err)
				}
				seen := 0
				for _, b := range e.Blocks {
					seen += len(b.Elements)
					for _, d := range b.Elements {
						code := f.Element.Decode(d.code)
						if got := float32(code * b.decode); got != d.decoded {
							t.Errorf("%v: code %s times scale %v is %v, not %v", d.value, d.Code, b.decode, got, d.decoded)
						}
						m := show.Number(math.Abs(float64(code)))
						if m != d.Lower && m != d.Upper {
							t.Errorf("%v: code %s stands for %v, not for %v or %v", d.value, d.Code, m, d.Lower, d.Upper)
						}
					}
				}
				if e.Defined && seen != len(values) {
					t.Errorf("%d values shown of %d", seen, len(values))
				}
				if !e.Defined && seen != 0 {
					t.Errorf("values shown for a format that is not defined")
				}
			})
		}
	}
}
