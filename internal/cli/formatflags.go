package cli

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// AddFormat gives cmd --format, a block format.
func AddFormat(cmd *cobra.Command) *Choice[quant.Format] {
	var names []string
	for _, f := range quant.Formats() {
		names = append(names, f.Name)
	}
	return AddChoice(cmd, "format", "block format `NAME`: one that microscale formats lists", "", names, quant.Lookup)
}

// AddProfile gives cmd --profile, whose behavior to follow.
func AddProfile(cmd *cobra.Command) *Choice[profile.Profile] {
	return AddChoice(cmd, "profile", "follow the library `NAME`: "+strings.Join(profileNames(), ", "), profile.Default().Name, profileCompletions(), profile.Lookup)
}

// AddProfiles gives cmd a --profile that also takes "all".
func AddProfiles(cmd *cobra.Command) *Choice[[]profile.Profile] {
	const all = "all"
	usage := fmt.Sprintf("follow the library `NAME`: %s; or %s, side by side", strings.Join(profileNames(), ", "), all)
	return AddChoice(cmd, "profile", usage, profile.Default().Name, append(profileCompletions(), all), func(name string) ([]profile.Profile, error) {
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

// AddScaleRule gives cmd --scale-rule, in place of the profile's.
func AddScaleRule(cmd *cobra.Command) *Choice[quant.ScaleRule] {
	names := Names(quant.ScaleRules())
	return AddChoice(cmd, "scale-rule", "e8m0 scales by the rule `NAME`, whatever the profile's: "+strings.Join(names, ", "), "", names, quant.ParseScaleRule)
}

// AddScaleSearch gives cmd --scale-search.
func AddScaleSearch(cmd *cobra.Command) *Choice[quant.Search] {
	names := Names(quant.Searches())
	search := AddChoice(cmd, "scale-search", "choose the scale of each block by the error that it leaves, as `NAME`: "+strings.Join(names, ", ")+"; mse where the flag stands alone", quant.NoSearch.String(), names, quant.ParseSearch)
	cmd.Flags().Lookup("scale-search").NoOptDefVal = quant.LeastSquares.String()
	return search
}

// Searching returns q with a search of scales.
func Searching(q quant.Quantizer, s quant.Search) quant.Quantizer {
	q.Search = s
	if s == quant.FourOverSixMSE || s == quant.FourOverSixMAE {
		q.TopScale = quant.FourOverSixTop
	}
	return q
}

// Quantizer returns what profile p does for format f, its scale rule replaced
// where one is given.
func Quantizer(p profile.Profile, f quant.Format, rule *Choice[quant.ScaleRule]) (quant.Quantizer, error) {
	q, err := p.Quantizer(f)
	if err != nil {
		return q, err
	}
	given, err := GivenRule(rule, f)
	if given != nil {
		q.Rule = *given
	}
	return q, err
}

// GivenRule returns the value of --scale-rule for format f, nil if the flag is not
// given.
func GivenRule(rule *Choice[quant.ScaleRule], f quant.Format) (*quant.ScaleRule, error) {
	switch {
	case !rule.Given:
		return nil, nil
	case f.Scale != format.E8M0:
		return nil, Misuse("--scale-rule is for formats with e8m0 scales, which %s has not: leave it out", f)
	}
	return &rule.Value, nil
}

// AddScalar gives cmd a flag that takes a scalar format, one of the given or any.
func AddScalar(cmd *cobra.Command, flag, usage, initial string, only ...*format.Scalar) *Choice[*format.Scalar] {
	if only == nil {
		return AddChoice(cmd, flag, usage, initial, Names(format.All()), format.Lookup)
	}
	names := Names(only)
	return AddChoice(cmd, flag, usage, initial, names, func(name string) (*format.Scalar, error) {
		s, err := format.Lookup(name)
		for _, o := range only {
			if s == o && err == nil {
				return s, nil
			}
		}
		return nil, fmt.Errorf("%q will not do: use one of %s", name, strings.Join(names, ", "))
	})
}

// AddRounding gives cmd --rounding.
func AddRounding(cmd *cobra.Command) *Choice[format.Rounding] {
	names := Names([]format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero, format.TowardZero, format.Up, format.Stochastic})
	return AddChoice(cmd, "rounding", "rounding `NAME`: "+strings.Join(names, ", ")+" (default nearest-even; up for e8m0)", "", names, parseText[format.Rounding])
}

// AddOverflow gives cmd --overflow.
func AddOverflow(cmd *cobra.Command) *Choice[format.Overflow] {
	overflows := []format.Overflow{format.Saturate, format.NonSaturating, format.SaturateFinite}
	names := Names(overflows)
	return AddChoice(cmd, "overflow", "where values beyond the largest go, `NAME`: "+strings.Join(names, ", "), overflows[0].String(), names, parseText[format.Overflow])
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
