package cpu

import "testing"

func TestParseTier(t *testing.T) {
	for i, name := range names {
		if got, err := ParseTier(name); err != nil || got != Tier(i) || got.String() != name {
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
	for tier := range Tier(len(names)) {
		if Has(tier) != have[tier] {
			t.Errorf("Has(%v): got %v", tier, Has(tier))
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
	}
}
