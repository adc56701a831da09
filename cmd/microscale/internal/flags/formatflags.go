package flags

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// AddFormat adds --format, a block format, to cmd.
func AddFormat(cmd *cobra.Command) *Choice[quant.Format] {
	return AddChoice(cmd, "format", "block format `NAME` (microscale formats lists them)", "", Names(quant.Formats()), quant.Lookup)
}

// AddProfile adds --profile, the library whose rules to follow, to cmd.
func AddProfile(cmd *cobra.Command) *Choice[profile.Profile] {
	return AddChoice(cmd, "profile", "follow the rules of library `NAME`: "+strings.Join(profileNames(), ", "), profile.Default().Name,
		profileCompletions(), profile.Lookup)
}

// AddProfiles adds a --profile that also takes "all" to cmd.
func AddProfiles(cmd *cobra.Command) *Choice[[]profile.Profile] {
	const all = "all"
	usage := fmt.Sprintf("follow the rules of library `NAME`: %s; or %s, side by side", strings.Join(profileNames(), ", "), all)
	return AddChoice(cmd, "profile", usage, profile.Default().Name, append(profileCompletions(), all),
		func(name string) ([]profile.Profile, error) {
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

// AddScaleRule adds --scale-rule, which overrides that of the profile, to cmd.
func AddScaleRule(cmd *cobra.Command) *Choice[quant.ScaleRule] {
	names := Names(quant.ScaleRules())
	return AddChoice(cmd, "scale-rule", "compute E8M0 scales by rule `NAME`: "+strings.Join(names, ", ")+" (default that of the profile)", "",
		names, ParseText[quant.ScaleRule])
}

// AddScaleSearch adds --scale-search to cmd.
func AddScaleSearch(cmd *cobra.Command) *Choice[quant.Search] {
	names := Names(quant.Searches())
	search := AddChoice(cmd, "scale-search", "choose the scale of each block that minimizes error `NAME`: "+strings.Join(names, ", ")+
		"; without a value: mse", quant.NoSearch.String(), names, ParseText[quant.Search])
	cmd.Flags().Lookup("scale-search").NoOptDefVal = quant.LeastSquares.String()
	return search
}

// Searching returns q with scale search s.
func Searching(q quant.Quantizer, s quant.Search) quant.Quantizer {
	q.Search = s
	if s == quant.FourOverSixMSE || s == quant.FourOverSixMAE {
		q.TopScale = quant.FourOverSixTop
	}
	return q
}

// Quantizer returns the quantizer of profile p for format f, with the scale rule of
// the flag if that is given.
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

// GivenRule returns the value of --scale-rule for format f, or nil if it is not given.
func GivenRule(rule *Choice[quant.ScaleRule], f quant.Format) (*quant.ScaleRule, error) {
	switch {
	case !rule.Given:
		return nil, nil
	case f.Scale != format.E8M0:
		return nil, show.Misuse("--scale-rule: %s has no E8M0 scales; omit the flag", f)
	}
	return &rule.Value, nil
}

// AddScalar adds a flag that takes a scalar format to cmd: one of only, or any.
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
		return nil, fmt.Errorf("unsupported format %q: use one of %s", name, strings.Join(names, ", "))
	})
}

// AddRounding adds --rounding to cmd.
func AddRounding(cmd *cobra.Command) *Choice[format.Rounding] {
	names := Names([]format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero, format.TowardZero, format.Up,
		format.Stochastic})
	return AddChoice(cmd, "rounding", "rounding mode `NAME`: "+strings.Join(names, ", ")+" (default nearest-even; up for e8m0)", "", names,
		ParseText[format.Rounding])
}

// AddOverflow adds --overflow to cmd.
func AddOverflow(cmd *cobra.Command) *Choice[format.Overflow] {
	overflows := []format.Overflow{format.Saturate, format.NonSaturating, format.SaturateFinite}
	names := Names(overflows)
	return AddChoice(cmd, "overflow", "overflow behavior `NAME`: "+strings.Join(names, ", "), overflows[0].String(), names,
		ParseText[format.Overflow])
}

// ParseText parses a value by its UnmarshalText method.
func ParseText[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text string) (T, error) {
	var v T
	err := P(&v).UnmarshalText([]byte(text))
	return v, err
}
