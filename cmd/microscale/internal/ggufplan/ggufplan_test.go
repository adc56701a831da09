package ggufplan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
)

// writeGGUF writes a file of zeros with tensors of one block.
func writeGGUF(t *testing.T, architecture string, counts map[string]uint32, names ...string) string {
	t.Helper()
	var specs []gguf.Spec
	for _, name := range names {
		specs = append(specs, gguf.Spec{Name: name, Type: gguf.F32, Shape: []int64{1, 1}})
	}
	return writeSpecs(t, architecture, counts, specs)
}

// writeSpecs writes a GGUF file of tensors of zeros.
func writeSpecs(t *testing.T, architecture string, counts map[string]uint32, specs []gguf.Spec) string {
	t.Helper()
	pairs := []gguf.Pair{{Key: "general.architecture", Value: architecture}}
	for key, n := range counts {
		pairs = append(pairs, gguf.Pair{Key: architecture + "." + key, Value: n})
	}
	l, err := gguf.NewLayout(specs, pairs)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, append(l.HeaderBytes(), make([]byte, l.FileSize()-int64(len(l.HeaderBytes())))...), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// stackedGGUF writes a file with a tensor of several matrices, and one of one.
func stackedGGUF(t *testing.T) string {
	t.Helper()
	return writeSpecs(t, "llama", nil, []gguf.Spec{{Name: "blk.0.ffn_up_exps.weight", Shape: []int64{2, 1, 1}}, {Name: "blk.0.attn_q.weight",
		Shape: []int64{1, 1}}, {Name: "blk.1.ffn_up_exps.weight", Shape: []int64{1, 1, 1}}})
}

// opened returns a function that opens a GGUF file, which the end of the test closes.
func opened(t *testing.T, path string) func() (*hf.Checkpoint, error) {
	return func() (*hf.Checkpoint, error) {
		c, err := llamacpp.Open(path)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
}

// TestRead: the formats of a model of 16 layers, whose tensors are not in their order, of one of 8 experts, and of one with tied
// embeddings, by src/llama-quant.cpp. TestMixtures of interop compares with llama.cpp itself.
func TestRead(t *testing.T) {
	names := []string{"token_embd.weight", "output.weight", "blk.0.attn_output.weight"}
	for i := range 16 {
		names = append(names, fmt.Sprintf("blk.%d.attn_v.weight", (i*5)%16), fmt.Sprintf("blk.%d.ffn_down.weight", (i*3)%16))
	}
	dense := writeGGUF(t, "llama", map[string]uint32{"block_count": 16, "attention.head_count": 8, "attention.head_count_kv": 2}, names...)
	experts := writeGGUF(t, "llama", map[string]uint32{"block_count": 1, "expert_count": 8}, "blk.0.attn_v.weight",
		"blk.0.ffn_down_exps.weight", "token_embd.weight", "blk.0.attn_k.weight", "blk.0.attn_output.weight")
	const all, more = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "0 1 4 7 10 13 14 15"
	for _, c := range []struct {
		name, path, values, downs, others string
		importance                        bool
	}{
		{"q4_k_m", dense, more, more, "output=q6_k", true},
		{"q4_k_s", dense, "0 1 2 3", "0 1", "output=q6_k", false},
		{"q3_k_l", dense, all, all, "output=q6_k attn_output=q5_k", false},
		{"q5_0", dense, "", "", "output=q6_k", false},
		{"q5_0", dense, "", "0 1", "output=q6_k", true},
		{"q4_k_m", experts, "0", "0", "token_embd=q6_k attn_k=q8_0 attn_output=q5_k", false},
		{"Q6_K", experts, "0", "", "attn_k=q8_0", false},
	} {
		p, err := Read(c.name, opened(t, c.path), c.importance)
		if err != nil {
			t.Fatal(err)
		}
		var values, downs, others []string
		for _, r := range p.Rule {
			match := strings.NewReplacer("^", "", "$", "", `\`, "").Replace(strings.TrimSuffix(r.Match, `\.weight$`))
			match = strings.Trim(strings.TrimSuffix(match, ".weight"), ".")
			switch layer := strings.Split(match, "."); {
			case len(layer) > 1 && strings.Contains(match, "attn_v"):
				values = append(values, layer[1])
			case len(layer) > 1:
				downs = append(downs, layer[1])
			default:
				others = append(others, match+"="+r.Format)
			}
		}
		want := [3]string{c.values, c.downs, c.others}
		if got := [3]string{strings.Join(values, " "), strings.Join(downs, " "), strings.Join(others, " ")}; got != want {
			t.Errorf("%s: got %q, want %q", c.name, got, want)
		}
	}
	if _, err := Read("q4_k_m", opened(t, writeGGUF(t, "falcon", nil)), false); err == nil ||
		!strings.Contains(err.Error(), `architecture "falcon"`) {
		t.Errorf("falcon: %v", err)
	}
	directory := func() (*hf.Checkpoint, error) { return &hf.Checkpoint{Path: "directory"}, nil }
	if _, err := Read("q4_k_m", directory, false); err == nil || !strings.Contains(err.Error(), "of GGUF files") {
		t.Errorf("a directory: %v", err)
	}
	for path, want := range map[string]int{dense: 0, stackedGGUF(t): 1} {
		p, err := Read("mxfp4_moe", opened(t, path), false)
		if err != nil || len(p.Rule) != want || p.Format != "q8_0" || p.FileType != 38 {
			t.Errorf("mxfp4_moe: %+v, %v", p, err)
		}
	}
	for name, want := range map[string]string{"q9_k_m": "q9_k_m is neither a plan file nor a mixture of llama-quantize: these are q2_k, ",
		"q9_k.toml": "read the plan"} {
		if _, err := Read(name, opened(t, dense), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
