package client

import (
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// TestEvenBlocks checks that the rule is for partial blocks of quantized weights of its convention only:
// a weight of at most one block has no partial one.
func TestEvenBlocks(t *testing.T) {
	for _, tc := range []struct {
		convention string
		format     quant.Format
		rows, cols int64
		wrong      string
	}{
		{"deepseek", quant.FP8Block, 192, 128, "192 rows"},
		{"deepseek", quant.FP8Block, 129, 128, "129 rows"},
		{"deepseek", quant.FP8Block, 256, 128, ""},
		{"deepseek", quant.FP8Block, 128, 128, ""},
		{"deepseek", quant.FP8Block, 100, 128, ""},
		{"deepseek", quant.Format{}, 192, 128, ""},
		{"deepseek", quant.FP8Row, 192, 128, ""},
		{"deepseek", quant.FP8Block, 128, 192, "192 columns"},
		{"deepseek", quant.FP8Block, 128, 100, ""},
		{"compressed-tensors", quant.FP8Block, 192, 128, ""},
	} {
		convention, err := checkpoint.LookupConvention(tc.convention)
		if err != nil {
			t.Fatal(err)
		}
		m := &checkpoint.Model{Convention: convention, Weights: []*checkpoint.Weight{{Name: "l.weight", Shape: []int64{tc.rows, tc.cols},
			Format: tc.format}}}
		problems := evenBlocks("deepseek")(m)
		if (len(problems) == 1) != (tc.wrong != "") || tc.wrong != "" && !strings.Contains(problems[0].Text,
			tc.wrong+", not a multiple of 128, and without a GPU") {
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

// TestPartialColumns: no client runs FP8 blocks of which the columns of a weight have a partial one, with inputs in
// blocks of 128.
func TestPartialColumns(t *testing.T) {
	for _, tc := range []struct {
		client, convention, scheme string
		cols                       int64
		wrong                      bool
	}{
		{"vllm", "compressed-tensors", "FP8_BLOCK", 576, true},
		{"vllm", "deepseek", "FP8", 576, true},
		{"vllm", "deepseek", "FP8", 640, false},
		{"sglang", "compressed-tensors", "FP8_BLOCK", 576, true},
		{"transformers", "compressed-tensors", "FP8_BLOCK", 576, true},
		{"transformers", "compressed-tensors", "FP8_BLOCK", 640, false},
		{"transformers", "compressed-tensors", "FP8_BLOCK_A16", 576, false}, // weights alone
		{"vllm", "compressed-tensors", "FP8_BLOCK_A16", 576, true},
		{"transformers", "deepseek", "FP8", 576, true},
	} {
		convention, err := checkpoint.LookupConvention(tc.convention)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Lookup(tc.client)
		if err != nil {
			t.Fatal(err)
		}
		w := &checkpoint.Weight{Name: "l.weight", Shape: []int64{128, tc.cols}, Format: quant.FP8Block}
		m := (&checkpoint.Model{Source: &hf.Checkpoint{}}).Planned(convention, tc.scheme, "", nil, []*checkpoint.Weight{w})
		if problems := c.Rejects(m); (len(problems) == 1) != tc.wrong || tc.wrong && !strings.Contains(problems[0].Text, "576 columns") {
			t.Errorf("%+v: %v", tc, problems)
		}
	}
}

// TestUnreadGGUF: a GGUF file whose weights are values is read by programs of GGUF files alone.
func TestUnreadGGUF(t *testing.T) {
	m := &checkpoint.Model{Source: &hf.Checkpoint{GGUF: &gguf.File{}}}
	var readers []string
	for _, c := range All() {
		switch problems := c.Rejects(m); {
		case len(problems) == 0:
			readers = append(readers, c.Name)
		case len(problems) > 1 || problems[0].Rule != "unread" ||
			problems[0].Text != c.Name+": it does not read GGUF files: dequantize writes a directory, without loss":
			t.Errorf("%s: problems %v", c.Name, problems)
		}
	}
	if want := []string{"llamacpp", "ollama"}; !slices.Equal(readers, want) {
		t.Errorf("it is read by %q, want %q", readers, want)
	}
}
