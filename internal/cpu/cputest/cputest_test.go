package cputest

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
)

func TestRun(t *testing.T) {
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
