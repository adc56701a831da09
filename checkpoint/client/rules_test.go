package client

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
)

// TestEvenBlocks checks that the rule is for partial blocks of quantized weights of its convention only:
// a weight of at most one block has no partial one.
func TestEvenBlocks(t *testing.T) {
	for _, tc := range []struct {
		convention string
		format     quant.Format
		rows       int64
		wrong      bool
	}{
		{"deepseek", quant.FP8Block, 192, true},
		{"deepseek", quant.FP8Block, 129, true},
		{"deepseek", quant.FP8Block, 256, false},
		{"deepseek", quant.FP8Block, 128, false},
		{"deepseek", quant.FP8Block, 100, false},
		{"deepseek", quant.Format{}, 192, false},
		{"deepseek", quant.FP8Row, 192, false},
		{"compressed-tensors", quant.FP8Block, 192, false},
	} {
		convention, err := checkpoint.LookupConvention(tc.convention)
		if err != nil {
			t.Fatal(err)
		}
		m := &checkpoint.Model{Convention: convention, Weights: []*checkpoint.Weight{{Name: "l.weight", Shape: []int64{tc.rows, 128}, Format: tc.format}}}
		problems := evenBlocks("deepseek")(m)
		if (len(problems) == 1) != tc.wrong || tc.wrong && !strings.Contains(problems[0].Text, "not a multiple of 128, and without a GPU") {
			t.Errorf("%+v: %v", tc, problems)
		}
	}
}
