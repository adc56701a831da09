package report

import (
	"reflect"
	"testing"

	"gonum.org/v1/plot/vg"
)

// TestSpread checks that labels keep their distance, their order and the range.
func TestSpread(t *testing.T) {
	for _, tc := range []struct{ places, want []vg.Length }{
		{[]vg.Length{10, 3, 4, 60}, []vg.Length{13, 3, 8, 60}},
		{[]vg.Length{99, 100, 98}, []vg.Length{95, 100, 90}},
		{[]vg.Length{-5, 200}, []vg.Length{0, 100}},
		{nil, nil},
	} {
		places := append([]vg.Length(nil), tc.places...)
		if spread(places, 5, 0, 100); !reflect.DeepEqual(places, tc.want) {
			t.Errorf("places %v: got %v, want %v", tc.places, places, tc.want)
		}
	}
}
