package report

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestSeedDeviation computes the recorded deviation from the losses in docs/results.md: the root
// mean square of the gaps of recipes that lose nothing on average.
func TestSeedDeviation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	losses := map[string][]float64{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \| (\d\.\d{4}) \| (\d\.\d{4}) \| (\d\.\d{4}) \|`).FindAllStringSubmatch(
		string(page), -1) {
		for _, text := range m[2:] {
			loss, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			losses[m[1]] = append(losses[m[1]], loss)
		}
	}
	var squares float64
	n := 0
	for name, list := range losses {
		if slices.Contains([]string{"f32", "delayed", "tensorwise", "blockwise", "mxfp8", "mxfp6"}, name) {
			for seed, loss := range list {
				gap := loss/losses["bf16"][seed] - 1
				squares += gap * gap
				n++
			}
		}
	}
	if got := math.Sqrt(squares / float64(n)); n != 18 || math.Abs(got-seedDeviation) > 0.00005 {
		t.Errorf("got a deviation of %.5f of %d gaps, want %g of 18", got, n, seedDeviation)
	}
}
