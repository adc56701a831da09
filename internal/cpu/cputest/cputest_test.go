package cputest

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
)

func TestRun(t *testing.T) {
	slow.Race(t, "one tier runs there")
	slow.Emulated(t, "a tier is left out there")
	before := cpu.Best()
	var ran []cpu.Tier
	Run(t, func(t *testing.T, tier cpu.Tier) {
		if cpu.Best() != tier {
			t.Errorf("Best() = %v while %v is forced", cpu.Best(), tier)
		}
		ran = append(ran, tier)
	})
	if !slices.Equal(ran, cpu.Tiers()) || cpu.Best() != before {
		t.Errorf("ran %v and left %v, want %v and %v", ran, cpu.Best(), cpu.Tiers(), before)
	}
}

// TestDistinct leaves out tiers that allow the same rows as a tier before them.
func TestDistinct(t *testing.T) {
	tiers := []cpu.Tier{cpu.AVX512, cpu.AVX512VBMI, cpu.AVX512F, cpu.AVX2, cpu.Plain}
	row := func(tier cpu.Tier) cpu.Form { return cpu.Form{Needs: tier.Set()} }
	for _, tc := range []struct{ rows, want []cpu.Tier }{
		{nil, tiers},
		{[]cpu.Tier{cpu.AVX2}, []cpu.Tier{cpu.AVX512, cpu.Plain}},
		{[]cpu.Tier{cpu.AVX512VBMI, cpu.AVX2}, []cpu.Tier{cpu.AVX512, cpu.AVX512F, cpu.Plain}},
		{[]cpu.Tier{cpu.AVX512, cpu.AVX512VBMI, cpu.AVX512F, cpu.AVX2, cpu.Plain}, tiers},
	} {
		var rows []cpu.Form
		for _, tier := range tc.rows {
			rows = append(rows, row(tier))
		}
		if got := distinct(tiers, rows); !slices.Equal(got, tc.want) {
			t.Errorf("rows of %v: got %v, want %v", tc.rows, got, tc.want)
		}
	}
}
