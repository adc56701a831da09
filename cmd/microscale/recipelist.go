package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/recipe"
)

// recipeList is the value of --recipes.
type recipeList struct {
	recipes []recipe.Recipe
	text    string
}

func (l *recipeList) String() string { return l.text }

func (l *recipeList) Type() string { return "names" }

func (l *recipeList) Set(s string) error {
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
	l.recipes, l.text = recipes, s
	return nil
}

// addRecipes gives cmd --recipes, all of the table where initial is "".
func addRecipes(cmd *cobra.Command, initial string) *recipeList {
	l := &recipeList{}
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
