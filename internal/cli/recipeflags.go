package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/recipe"
)

// BaselineRecipe is the recipe that others are compared with.
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

// RecipeFlags are the flags that say which recipe: its name, and a switch for
// each thing of it that can be changed.
type RecipeFlags struct {
	name     *string
	switches []*switchFlag
}

// A switchFlag is the value of a flag that sets a switch of a recipe.
type switchFlag struct {
	recipe.Switch
	value string
	given bool
}

func (s *switchFlag) String() string { return s.value }

// Type tells the help of flags that are given without a value from the others.
func (s *switchFlag) Type() string {
	if s.boolean() {
		return "bool"
	}
	return "value"
}

func (s *switchFlag) boolean() bool { return s.Values == "true | false" }

// Set stores the text of the value. The recipe parses it.
func (s *switchFlag) Set(v string) error {
	s.value, s.given = v, true
	return nil
}

// AddRecipe gives cmd --recipe and the flags of switches.
func AddRecipe(cmd *cobra.Command) *RecipeFlags {
	const initial = "mxfp8"
	var completions []string
	for _, r := range recipe.Recipes() {
		completions = append(completions, cobra.CompletionWithDesc(r.Name, r.Doc))
	}
	f := &RecipeFlags{name: cmd.Flags().String("recipe", initial, "train under the recipe `NAME`: "+strings.Join(RecipeNames(), ", ")+"; or a TOML file")}
	if err := cmd.RegisterFlagCompletionFunc("recipe", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveDefault)); err != nil {
		panic(err) // the flag was registered twice
	}
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

// addSwitches gives cmd a flag for each switch of recipes.
func (f *RecipeFlags) addSwitches(cmd *cobra.Command) {
	for _, s := range recipe.Switches() {
		v := &switchFlag{Switch: s}
		flag := &pflag.Flag{Name: s.Flag(), Usage: s.Doc + "; " + valuesText(s.Values), Value: v}
		if v.boolean() {
			flag.Usage, flag.NoOptDefVal = s.Doc+"; not so with =false", "true"
		}
		cmd.Flags().AddFlag(flag)
		f.switches = append(f.switches, v)
	}
}

// valuesText words the values of a switch, and names the place of a flag's value.
func valuesText(values string) string {
	if strings.Contains(values, " | ") && !strings.Contains(values, " list ") {
		return "one of `" + strings.ReplaceAll(values, " | ", "|") + "`"
	}
	return "`VALUE` is " + values
}

// Recipe returns the recipe of the flags.
func (f *RecipeFlags) Recipe() (recipe.Recipe, error) {
	r, err := recipe.Find(*f.name)
	if err != nil {
		return r, Misuse("--recipe: %v", err)
	}
	return r, f.apply(&r)
}

// apply sets the switches that were given.
func (f *RecipeFlags) apply(r *recipe.Recipe) error {
	for _, s := range f.switches {
		if !s.given {
			continue
		}
		if err := r.Set(s.Name, s.value); err != nil {
			return Misuse("--%s: %v", s.Flag(), err)
		}
	}
	if err := r.Validate(); err != nil {
		return Misuse("%v", err)
	}
	return nil
}

// RecipeList is the value of --recipes.
type RecipeList struct {
	Recipes []recipe.Recipe
	text    string
}

func (l *RecipeList) String() string { return l.text }

// Type returns the type of the value, for pflag.
func (l *RecipeList) Type() string { return "names" }

// Set finds the recipes of a list of names and files.
func (l *RecipeList) Set(s string) error {
	var recipes []recipe.Recipe
	taken := map[string]bool{}
	for _, name := range strings.Split(s, ",") {
		r, err := recipe.Find(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		if taken[r.Name] {
			return fmt.Errorf("%s is there twice: leave one out, or give a TOML file another name", r.Name)
		}
		taken[r.Name] = true
		recipes = append(recipes, r)
	}
	l.Recipes, l.text = recipes, s
	return nil
}

// AddRecipes gives cmd --recipes, all of the table where initial is "".
func AddRecipes(cmd *cobra.Command, initial string) *RecipeList {
	l := &RecipeList{}
	var names, completions []string
	for _, r := range recipe.Recipes() {
		names = append(names, r.Name)
		completions = append(completions, cobra.CompletionWithDesc(r.Name, r.Doc))
	}
	all := strings.Join(names, ",")
	usage := "recipes `NAMES`, with commas between them: " + strings.Join(names, ", ") + "; or TOML files"
	if initial == "" {
		initial, usage = all, usage+" (default all of these)"
	}
	if err := l.Set(initial); err != nil {
		panic(err) // rows of the table
	}
	if initial == all {
		l.text = ""
	}
	cmd.Flags().Var(l, "recipes", usage)
	if err := cmd.RegisterFlagCompletionFunc("recipes", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveDefault)); err != nil {
		panic(err) // the flag was registered twice
	}
	return l
}
