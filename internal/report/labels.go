package report

import (
	"slices"

	"gonum.org/v1/plot/vg"
)

// spread moves places up until any two are at least the distance apart, and returns their
// indices from the lowest to the highest.
func spread(places []vg.Length, distance vg.Length) (order []int) {
	for i := range places {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case places[a] < places[b]:
			return -1
		case places[a] > places[b]:
			return 1
		}
		return 0
	})
	for k := 1; k < len(order); k++ {
		places[order[k]] = max(places[order[k]], places[order[k-1]]+distance)
	}
	return order
}
