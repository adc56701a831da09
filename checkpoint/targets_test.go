package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestTargetPatterns lists the targets of groups of modules.
func TestTargetPatterns(t *testing.T) {
	layers := func(format string, numbers ...int) (modules []string) {
		for _, n := range numbers {
			modules = append(modules, fmt.Sprintf(format, n))
		}
		return modules
	}
	for _, tc := range []struct {
		name        string
		lists       [][]string
		unquantized []string
		want        [][]string
	}{
		{"layers", [][]string{append(layers("model.layers.%d.self_attn.q_proj", 0, 1), layers("model.layers.%d.self_attn.k_proj", 0, 1)...),
			layers("model.layers.%d.mlp.up", 0, 1)}, []string{"model.embed_tokens"},
			[][]string{{`re:(.*[.])?layers[.]\d+[.]self_attn[.](k_proj|q_proj)$`}, {`re:(.*[.])?layers[.]\d+[.]mlp[.]up$`}}},
		{"some layers", [][]string{layers("model.layers.%d.up", 0, 10, 2), layers("model.layers.%d.up", 1)}, layers("model.layers.%d.up", 3),
			[][]string{{`re:(.*[.])?layers[.](0|2|10)[.]up$`}, {`re:(.*[.])?layers[.]1[.]up$`}}},
		{"experts", [][]string{{"m.layers.0.experts.0.up", "m.layers.0.experts.1.up"}, {"m.layers.1.experts.0.up"}}, nil,
			[][]string{{`re:(.*[.])?layers[.]0[.]experts[.]\d+[.]up$`}, {`re:(.*[.])?layers[.]1[.]experts[.]\d+[.]up$`}}},
		{"one layer in two", [][]string{{"m.layers.0.experts.0.up"}, {"m.layers.0.experts.1.up"}}, nil,
			[][]string{{"m.layers.0.experts.0.up"}, {"m.layers.0.experts.1.up"}}},
		{"two towers", [][]string{{"vision.layers.0.up", "vision.layers.1.up"}, {"text.layers.0.up"}}, nil,
			[][]string{{"vision.layers.0.up", `re:(.*[.])?layers[.]1[.]up$`}, {"text.layers.0.up"}}},
		{"an unquantized tower", [][]string{{"text.layers.0.up"}, {"text.layers.0.down"}}, []string{"vision.layers.0.up"},
			[][]string{{`re:(.*[.])?layers[.]\d+[.]up$`}, {`re:(.*[.])?layers[.]\d+[.]down$`}}},
		{"outside of layers", [][]string{{"lm_head", "model.proj"}, {"model.layers.0.proj", "a.model.proj"}}, nil,
			[][]string{{"model.proj", `re:(.*[.])?lm_head$`}, {`re:(.*[.])?a[.]model[.]proj$`, `re:(.*[.])?layers[.]\d+[.]proj$`}}},
	} {
		got := targetPatterns(tc.lists, tc.unquantized)
		for g := range tc.want {
			slices.Sort(tc.want[g])
			if !slices.Equal(got[g], tc.want[g]) {
				t.Errorf("%s: list %d: got %q, want %q", tc.name, g, got[g], tc.want[g])
			}
		}
	}
}

// TestTargetPatternsDisjoint: of random lists of modules, each module is selected by entries of its list alone.
func TestTargetPatternsDisjoint(t *testing.T) {
	words := []string{"model", "layers", "layers.0", "layers.1", "layers.2", "experts.0", "experts.1", "up", "down", "attn", "1"}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		lists, seen := make([][]string, 3), map[string]bool{}
		var unquantized []string
		for range 40 {
			var parts []string
			for range 1 + random.IntN(4) {
				parts = append(parts, words[random.IntN(len(words))])
			}
			module := strings.Join(parts, ".")
			if seen[module] {
				continue
			}
			seen[module] = true
			if g := random.IntN(4); g < 3 {
				lists[g] = append(lists[g], module)
			} else {
				unquantized = append(unquantized, module)
			}
		}
		for g, entries := range targetPatterns(lists, unquantized) {
			selected := exactOrRegexp(entries)
			for other, list := range lists {
				for _, module := range list {
					if selected(module) != (g == other) {
						t.Fatalf("seed %d: the entries %q of list %d select %s of list %d: %v", seed, entries, g, module, other, selected(module))
					}
				}
			}
		}
	}
}
