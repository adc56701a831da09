package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/recipe"
)

// BaselineRecipe is the recipe to compare others with.
const BaselineRecipe = "bf16"

// WithBaseline returns the recipes with the baseline first.
func WithBaseline(recipes []recipe.Recipe) []recipe.Recipe {
	base, err := recipe.Lookup(BaselineRecipe)
	if err != nil {
		panic(err) // a row of the table
	}
	list := []recipe.Recipe{base}
	for _, r := range recipes {
		if r.Name != BaselineRecipe {
			list = append(list, r)
		}
	}
	return list
}

// RecipeFlags are --recipe and a flag for each switch of recipes.
type RecipeFlags struct {
	cmd      *cobra.Command
	name     *string
	switches []*switchFlag
}

// A switchFlag is the value of the flag of a switch.
type switchFlag struct {
	recipe.Switch
	value string
	given bool
}

func (s *switchFlag) String() string { return s.value }

// Type returns "bool" for flags that need no value, for the help.
func (s *switchFlag) Type() string {
	if s.boolean() {
		return "bool"
	}
	return "value"
}

func (s *switchFlag) boolean() bool { return s.Values == "true | false" }

// Set stores the text. The recipe parses it.
func (s *switchFlag) Set(v string) error {
	s.value, s.given = v, true
	return nil
}

// AddRecipe adds --recipe and the flags of all switches to cmd.
func AddRecipe(cmd *cobra.Command) *RecipeFlags {
	const initial = "mxfp8"
	f := &RecipeFlags{cmd: cmd, name: cmd.Flags().String("recipe", initial, "train with recipe `NAME`: "+strings.Join(RecipeNames(), ", ")+
		", or a TOML file")}
	complete(cmd, "recipe", recipeCompletions(), cobra.ShellCompDirectiveDefault)
	f.addSwitches(cmd)
	return f
}

// RecipeNames returns the names of the built-in recipes.
func RecipeNames() []string {
	var names []string
	for _, r := range recipe.Recipes() {
		names = append(names, r.Name)
	}
	return names
}

func recipeCompletions() []string {
	var completions []string
	for _, r := range recipe.Recipes() {
		completions = append(completions, cobra.CompletionWithDesc(r.Name, r.Doc))
	}
	return completions
}

// addSwitches adds a flag for each switch of recipes to cmd.
func (f *RecipeFlags) addSwitches(cmd *cobra.Command) {
	for _, s := range new(recipe.Recipe).Switches() {
		v := &switchFlag{Switch: s}
		flag := &pflag.Flag{Name: s.Flag(), Usage: s.Doc + "; " + valuesText(s.Values), Value: v}
		if v.boolean() {
			flag.Usage, flag.NoOptDefVal = s.Doc+"; =false disables it", "true"
		}
		cmd.Flags().AddFlag(flag)
		f.switches = append(f.switches, v)
	}
}

// valuesText describes the values of a switch, and names its placeholder.
func valuesText(values string) string {
	if strings.Contains(values, " | ") && !strings.Contains(values, " list ") {
		return "one of `" + strings.ReplaceAll(values, " | ", "|") + "`"
	}
	return "`VALUE` is " + values
}

// Recipe returns the recipe with the switches that were given.
func (f *RecipeFlags) Recipe() (recipe.Recipe, error) {
	r, err := recipe.Find(*f.name)
	if err != nil {
		return r, show.Misuse("--recipe: %v", err)
	}
	err = f.apply(&r)
	return r, err
}

// apply sets the switches that were given.
func (f *RecipeFlags) apply(r *recipe.Recipe) error {
	for _, s := range f.switches {
		if !s.given {
			continue
		}
		err := r.Set(s.Name, s.value)
		if errors.Is(err, recipe.ErrNotDelayed) { // as in Megatron-LM
			fmt.Fprintf(f.cmd.ErrOrStderr(), "%s: %s has no effect: %v\n", f.cmd.Root().Name(), Label(f.cmd, s.Flag()), err)
			continue
		}
		if err != nil {
			return show.Misuse("%s: %v", Label(f.cmd, s.Flag()), err)
		}
	}
	if err := r.Validate(); err != nil {
		return show.Misuse("%v", err)
	}
	return nil
}

// A RecipeList is the value of --recipes.
type RecipeList struct {
	Recipes []recipe.Recipe
	text    string
}

func (l *RecipeList) String() string { return l.text }

// Type returns the type of the value, for pflag.
func (l *RecipeList) Type() string { return "names" }

// Set finds the recipes of comma-separated names and TOML files.
func (l *RecipeList) Set(s string) error {
	var recipes []recipe.Recipe
	taken := map[string]bool{}
	for _, name := range strings.Split(s, ",") {
		r, err := recipe.Find(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if taken[r.Name] {
			return fmt.Errorf("%s is named twice: omit one, or rename that of a TOML file", r.Name)
		}
		taken[r.Name] = true
		recipes = append(recipes, r)
	}
	l.Recipes, l.text = recipes, s
	return nil
}

// AddRecipes adds --recipes to cmd. The default is initial, or all if that is "".
func AddRecipes(cmd *cobra.Command, initial string) *RecipeList {
	l := &RecipeList{}
	all := strings.Join(RecipeNames(), ",")
	usage := "comma-separated recipes `NAMES`: " + strings.Join(RecipeNames(), ", ") + ", or TOML files"
	if initial == "" {
		initial, usage = all, usage+" (default all of the names)"
	}
	if err := l.Set(initial); err != nil {
		panic(err) // rows of the table
	}
	if initial == all {
		l.text = ""
	}
	cmd.Flags().Var(l, "recipes", usage)
	f := cmd.Flags().Lookup("recipes")
	f.DefValue = strings.ReplaceAll(f.DefValue, ",", ", ") // help breaks lines at spaces
	complete(cmd, "recipes", recipeCompletions(), cobra.ShellCompDirectiveDefault)
	return l
}

// AddAccumulators adds --accumulate, a list for comparisons, to cmd.
func AddAccumulators(cmd *cobra.Command) *AccumulatorList {
	l := &AccumulatorList{}
	if err := l.Set("fp32"); err != nil {
		panic(err) // the default
	}
	l.given = false
	cmd.Flags().Var(l, "accumulate", "train with each recipe but "+BaselineRecipe+" with each of comma-separated accumulators `NAMES`: "+
		"fp32, a model of microscale mma, or MODEL:N, promoted to FP32 every N elements")
	return l
}

// An AccumulatorList is the value of --accumulate of comparisons.
type AccumulatorList struct {
	list  []mma.Accumulator
	text  string
	given bool // by the user
}

func (l *AccumulatorList) String() string { return l.text }

// Type returns the type of the value, for pflag.
func (l *AccumulatorList) Type() string { return "names" }

// Set parses comma-separated accumulators.
func (l *AccumulatorList) Set(s string) error {
	var list []mma.Accumulator
	for _, text := range strings.Split(s, ",") {
		var a mma.Accumulator
		if err := a.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
			return err
		}
		if slices.Contains(list, a) {
			return fmt.Errorf("%s is named twice: omit one", a)
		}
		list = append(list, a)
	}
	l.list, l.text, l.given = list, s, true
	return nil
}

// Recipes returns each recipe but the baseline with each accumulator. The name of a variant ends
// in its accumulator if the recipe adds otherwise. Without --accumulate, recipes are unchanged. If
// there is no recipe but the baseline, --accumulate is an error.
func (l *AccumulatorList) Recipes(recipes []recipe.Recipe) ([]recipe.Recipe, error) {
	if !l.given {
		return recipes, nil
	}
	if !slices.ContainsFunc(recipes, func(r recipe.Recipe) bool { return r.Name != BaselineRecipe }) {
		return nil, show.Misuse("--accumulate: the products of %s are added in FP32: name another recipe, such as --recipes tensorwise",
			BaselineRecipe)
	}
	var list []recipe.Recipe
	for _, r := range recipes {
		if r.Name == BaselineRecipe {
			list = append(list, r)
			continue
		}
		for _, a := range l.list {
			variant := r
			for g := range variant.Accumulate {
				variant.Accumulate[g] = a
			}
			if variant.Accumulate != r.Accumulate {
				variant.Name += "+" + a.String()
				how := "as " + a.String() + " does"
				if a.Model == nil {
					how = "in FP32"
				}
				variant.Doc += "; products added " + how
			}
			if err := variant.Validate(); err != nil {
				return nil, show.Misuse("--accumulate: %v", err)
			}
			list = append(list, variant)
		}
	}
	return list, nil
}
