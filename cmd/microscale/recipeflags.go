package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/recipe"
)

// recipeFlags are the flags that say which recipe: its name, and a switch for
// each thing of it that can be changed.
type recipeFlags struct {
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

func (s *switchFlag) Set(v string) error {
	s.value, s.given = v, true
	return nil
}

// addRecipe gives cmd --recipe and the flags of switches.
func addRecipe(cmd *cobra.Command) *recipeFlags {
	const initial = "mxfp8"
	var completions []string
	for _, r := range recipe.Recipes() {
		completions = append(completions, cobra.CompletionWithDesc(r.Name, r.Doc))
	}
	f := &recipeFlags{name: cmd.Flags().String("recipe", initial, "train under the recipe `NAME`: "+strings.Join(recipeNames(), ", ")+"; or a TOML file")}
	if err := cmd.RegisterFlagCompletionFunc("recipe", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveDefault)); err != nil {
		panic(err) // the flag was registered twice
	}
	f.addSwitches(cmd)
	return f
}

func recipeNames() []string {
	var names []string
	for _, r := range recipe.Recipes() {
		names = append(names, r.Name)
	}
	return names
}

// addSwitches gives cmd a flag for each switch of recipes.
func (f *recipeFlags) addSwitches(cmd *cobra.Command) {
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

// recipe returns the recipe of the flags.
func (f *recipeFlags) recipe() (recipe.Recipe, error) {
	r, err := recipe.Find(*f.name)
	if err != nil {
		return r, misuse("--recipe: %v", err)
	}
	return r, f.apply(&r)
}

// apply sets the switches that were given.
func (f *recipeFlags) apply(r *recipe.Recipe) error {
	for _, s := range f.switches {
		if !s.given {
			continue
		}
		if err := r.Set(s.Name, s.value); err != nil {
			return misuse("--%s: %v", s.Flag(), err)
		}
	}
	if err := r.Validate(); err != nil {
		return misuse("%v", err)
	}
	return nil
}
