package main

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// A choice is the value of a flag that takes one of a table's names. A name that
// is not in the table is wrong usage, and the shell completes those that are.
type choice[T any] struct {
	value T
	given bool // on the command line

	text  string
	parse func(string) (T, error)
}

func (c *choice[T]) String() string { return c.text }

func (c *choice[T]) Type() string { return "name" }

func (c *choice[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil {
		return err
	}
	c.value, c.text, c.given = v, s, true
	return nil
}

// choices is the value of a flag that takes names of a table, separated by commas,
// any number of times.
type choices[T fmt.Stringer] struct {
	values []T
	parse  func(string) (T, error)
}

func (c *choices[T]) String() string { return strings.Join(stringers(c.values), ",") }

func (c *choices[T]) Type() string { return "names" }

func (c *choices[T]) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		v, err := c.parse(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		c.values = append(c.values, v)
	}
	return nil
}

// addChoice gives cmd a flag that takes one of names. Its value is that of
// initial until it is given; without an initial name it is the zero value.
func addChoice[T any](cmd *cobra.Command, flag, usage, initial string, names []string, parse func(string) (T, error)) *choice[T] {
	c := &choice[T]{parse: parse}
	if initial != "" {
		if err := c.Set(initial); err != nil {
			panic(err)
		}
		c.given = false
	}
	cmd.Flags().Var(c, flag, usage)
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered twice
	}
	return c
}

// addFormat gives cmd --format, a block format.
func addFormat(cmd *cobra.Command) *choice[quant.Format] {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, f.Name)
	}
	return addChoice(cmd, "format", "block format `NAME`: one that microscale formats lists", "", names, quant.Lookup)
}

// addProfile gives cmd --profile, whose behavior to follow.
func addProfile(cmd *cobra.Command) *choice[profile.Profile] {
	return addChoice(cmd, "profile", "follow the library `NAME`: "+strings.Join(profileNames(), ", "), profile.Default().Name, profileCompletions(), profile.Lookup)
}

// addProfiles gives cmd a --profile that also takes "all".
func addProfiles(cmd *cobra.Command) *choice[[]profile.Profile] {
	const all = "all"
	usage := fmt.Sprintf("follow the library `NAME`: %s; or %s, side by side", strings.Join(profileNames(), ", "), all)
	return addChoice(cmd, "profile", usage, profile.Default().Name, append(profileCompletions(), all), func(name string) ([]profile.Profile, error) {
		if strings.EqualFold(name, all) {
			return profile.All(), nil
		}
		p, err := profile.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("%w, or %s", err, all)
		}
		return []profile.Profile{p}, nil
	})
}

func profileNames() []string {
	var names []string
	for _, p := range profile.All() {
		names = append(names, p.Name)
	}
	return names
}

func profileCompletions() []string {
	var names []string
	for _, p := range profile.All() {
		names = append(names, cobra.CompletionWithDesc(p.Name, p.Doc))
	}
	return names
}

// addScaleRule gives cmd --scale-rule, in place of the profile's.
func addScaleRule(cmd *cobra.Command) *choice[quant.ScaleRule] {
	names := stringers(quant.ScaleRules())
	return addChoice(cmd, "scale-rule", "e8m0 scales by the rule `NAME`, whatever the profile's: "+strings.Join(names, ", "), "", names, quant.ParseScaleRule)
}

// addScaleSearch gives cmd --scale-search.
func addScaleSearch(cmd *cobra.Command) *choice[quant.Search] {
	names := stringers(quant.Searches())
	search := addChoice(cmd, "scale-search", "choose the scale of each block by the error that it leaves, as `NAME`: "+strings.Join(names, ", ")+"; mse where the flag stands alone", quant.NoSearch.String(), names, quant.ParseSearch)
	cmd.Flags().Lookup("scale-search").NoOptDefVal = quant.LeastSquares.String()
	return search
}

// searching returns q with a search of scales.
func searching(q quant.Quantizer, s quant.Search) quant.Quantizer {
	q.Search = s
	if s == quant.FourOverSixMSE || s == quant.FourOverSixMAE {
		q.TopScale = quant.FourOverSixTop
	}
	return q
}

// quantizer returns what profile p does for format f, its scale rule replaced
// where one is given.
func quantizer(p profile.Profile, f quant.Format, rule *choice[quant.ScaleRule]) (quant.Quantizer, error) {
	q, err := p.Quantizer(f)
	if err != nil {
		return q, err
	}
	if rule.given {
		if f.Scale != format.E8M0 {
			return q, misuse("--scale-rule is for formats with e8m0 scales, which %s has not: leave it out", f)
		}
		q.Rule = rule.value
	}
	return q, nil
}

// addScalar gives cmd a flag that takes a scalar format, one of the given or any.
func addScalar(cmd *cobra.Command, flag, usage, initial string, only ...*format.Scalar) *choice[*format.Scalar] {
	if only == nil {
		return addChoice(cmd, flag, usage, initial, stringers(format.All()), format.Lookup)
	}
	names := stringers(only)
	return addChoice(cmd, flag, usage, initial, names, func(name string) (*format.Scalar, error) {
		s, err := format.Lookup(name)
		for _, o := range only {
			if s == o && err == nil {
				return s, nil
			}
		}
		return nil, fmt.Errorf("%q will not do: use one of %s", name, strings.Join(names, ", "))
	})
}

func addRounding(cmd *cobra.Command) *choice[format.Rounding] {
	names := stringers([]format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero, format.TowardZero, format.Up, format.Stochastic})
	return addChoice(cmd, "rounding", "rounding `NAME`: "+strings.Join(names, ", ")+" (default nearest-even; up for e8m0)", "", names, parseText[format.Rounding])
}

func addOverflow(cmd *cobra.Command) *choice[format.Overflow] {
	overflows := []format.Overflow{format.Saturate, format.NonSaturating, format.SaturateFinite}
	names := stringers(overflows)
	return addChoice(cmd, "overflow", "where values beyond the largest go, `NAME`: "+strings.Join(names, ", "), overflows[0].String(), names, parseText[format.Overflow])
}

// parseText parses a value by its UnmarshalText method.
func parseText[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text string) (T, error) {
	var v T
	err := P(&v).UnmarshalText([]byte(text))
	return v, err
}

// exclusive lets a command line have one of two flags only.
func exclusive(cmd *cobra.Command, a, b string) {
	cmd.MarkFlagsMutuallyExclusive(a, b) // for the shell, which then leaves one out
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed(a) && cmd.Flags().Changed(b) {
			return misuse("--%s and --%s exclude each other: leave one out", a, b)
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
}

func stringers[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}
