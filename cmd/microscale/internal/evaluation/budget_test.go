package evaluation

import (
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/budget"
)

// TestMeasurementComplete checks that measurements of other groups or windows, as of a damaged file, are not taken.
func TestMeasurementComplete(t *testing.T) {
	groups := []budget.Group{{Options: make([]budget.Option, 2)}, {Options: make([]budget.Option, 1)}}
	for _, c := range []struct {
		kl   [][]float64
		want bool
	}{
		{[][]float64{{1, 2}, {3}}, true},
		{[][]float64{{1, 2}}, false},
		{[][]float64{{1, 2}, {}}, false},
		{nil, false},
	} {
		m := measurement{}
		if m.Groups.KL = c.kl; m.hasGroups(groups) != c.want {
			t.Errorf("%v: complete: got %t, want %t", c.kl, !c.want, c.want)
		}
	}
	one, two := make([]WindowReceipt, 1), make([]WindowReceipt, 2)
	for _, c := range []struct {
		windows [][]WindowReceipt
		want    bool
	}{
		{[][]WindowReceipt{two, two}, true},
		{[][]WindowReceipt{two, one}, false},
		{[][]WindowReceipt{two}, false},
		{[][]WindowReceipt{nil, nil}, false},
		{nil, false},
	} {
		m := measurement{}
		if m.Plans.Windows = c.windows; m.hasPlans(2) != c.want {
			t.Errorf("%d lists of windows: complete: got %t, want %t", len(c.windows), !c.want, c.want)
		}
	}
}
