package decoder

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/family"
)

// TestNeeded: what a family is said to need are the tensors that its models are made of.
func TestNeeded(t *testing.T) {
	for name := range familyConfigs {
		f, s, err := family.Read([]byte(familyConfig(name)))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := compile(f, s)
		if err != nil {
			t.Fatal(err)
		}
		m, err := newModel(s.Config, plan, Options{}, plan.newEmbedding())
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, w := range m.wants() {
			want = append(want, w.name)
		}
		slices.Sort(want)
		if got := slices.Sorted(f.Needed(s)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
