package client

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
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

// TestWholeShards: the last part of a fused matrix may end in a partial block, as that of DeepSeek-V3
// does with 576 rows.
func TestWholeShards(t *testing.T) {
	convention, err := checkpoint.LookupConvention("deepseek")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ q, k, v, want int64 }{
		{1536, 576, 0, 0},
		{1500, 576, 0, 1500},
		{256, 192, 64, 192},
		{256, 128, 64, 0},
	} {
		names := []string{"l.q_proj.weight", "l.k_proj.weight", "l.v_proj.weight"}
		if tc.v == 0 {
			names = []string{"l.kv_a_proj_with_mqa.weight", "l.q_a_proj.weight"} // in the order of a file
		}
		m := &checkpoint.Model{Source: &hf.Checkpoint{}, Convention: convention}
		for i, name := range names {
			rows := []int64{tc.q, tc.k, tc.v}[i]
			if tc.v == 0 {
				rows = []int64{tc.k, tc.q}[i]
			}
			m.Weights = append(m.Weights, &checkpoint.Weight{Name: name, Shape: []int64{rows, 128}, Format: quant.FP8Block})
		}
		var rows []int64
		for _, p := range wholeShards(m) {
			for _, w := range m.Weights {
				if w.Name == p.Tensor {
					rows = append(rows, w.Shape[0])
				}
			}
		}
		if want := tc.want; (want == 0) != (len(rows) == 0) || want != 0 && rows[0] != want {
			t.Errorf("%+v: problems with weights of %v rows", tc, rows)
		}
	}
}
