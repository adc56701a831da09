package flags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/recipe"
)

// TestAccumulatorRecipes checks which recipes compare trains: the baseline once, the others with each
// accumulator of the list, also one whose own accumulator is not FP32.
func TestAccumulatorRecipes(t *testing.T) {
	lookup := func(name string) recipe.Recipe {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var hopper mma.Accumulator
	if err := hopper.UnmarshalText([]byte("hopper-wgmma")); err != nil {
		t.Fatal(err)
	}
	file := lookup("tensorwise")
	file.Name, file.Accumulate = "mine", [3]mma.Accumulator{hopper, hopper, {}}
	bf16, tensorwise := lookup(BaselineRecipe), lookup("tensorwise")
	for _, tc := range []struct {
		accumulate string // "": not given
		recipes    []recipe.Recipe
		want       string // names with the accumulator of fprop, or an error
	}{
		{"", []recipe.Recipe{bf16, file}, "bf16 fp32, mine hopper-wgmma"},
		{"", []recipe.Recipe{bf16}, "bf16 fp32"},
		{"fp32,hopper-wgmma", []recipe.Recipe{bf16, tensorwise}, "bf16 fp32, tensorwise fp32, tensorwise+hopper-wgmma hopper-wgmma"},
		{"fp32,hopper-wgmma", []recipe.Recipe{bf16, file}, "bf16 fp32, mine+fp32 fp32, mine+hopper-wgmma hopper-wgmma"},
		{"hopper-wgmma", []recipe.Recipe{bf16}, "--accumulate: the products of bf16 are added in FP32: name another recipe, such as " +
			"--recipes tensorwise"},
	} {
		cmd := &cobra.Command{}
		l := AddAccumulators(cmd)
		if tc.accumulate != "" {
			if err := cmd.Flags().Set("accumulate", tc.accumulate); err != nil {
				t.Fatal(err)
			}
		}
		recipes, err := l.Recipes(tc.recipes)
		var got []string
		for _, r := range recipes {
			got = append(got, r.Name+" "+r.Accumulate[recipe.Fprop].String())
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		if text != tc.want {
			t.Errorf("--accumulate %q: got %s, want %s", tc.accumulate, text, tc.want)
		}
	}
}

// TestRecipeSuggestions checks that errors of recipe files, too, suggest what is like the unknown name.
func TestRecipeSuggestions(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"base = \"mxfp8\"\nscale_rul = \"floor\"":      `line 2: unknown key "scale_rul": did you mean scale_rule?`,
		"base = \"mxfp8\"\nscale_rule = \"flor\"":      `unknown scale rule "flor": did you mean floor?`,
		"base = \"mxpf8\"":                             `line 1: unknown recipe "mxpf8": did you mean mxfp8?`,
		"base = \"mxfp8\"\naccumulate = \"hopper-wg\"": `unknown model "hopper-wg": did you mean hopper-wgmma?`,
		"base = \"mxfp8\"\n[grad.sideways]":            `line 2: unknown key "sideways": use one of rowwise, columnwise`,
	} {
		path := filepath.Join(dir, "mine.toml")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := recipe.Find(path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := recipe.Find("mxpf8"); err == nil || err.Error() != `unknown recipe "mxpf8": did you mean mxfp8?` {
		t.Errorf("got %v", err)
	}
}
