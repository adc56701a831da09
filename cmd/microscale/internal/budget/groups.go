package budget

import (
	"regexp"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
)

// A Choice is a format that weights may have.
type Choice struct {
	Format string
	Plan   *convert.Plan // in which it is the format of all; nil for convert.Keep
}

// A tally is what a plan does with the weights of a group.
type tally struct {
	names           []string
	elements, bytes int64
	format          string
}

// Groups returns the weights that plans quantize, as groups that have one format. Those that a rule of the user names are fixed. kept is
// the number of bits of an element that is not quantized; a weight that a plan leaves so may be left.
func Groups(m *checkpoint.Model, choices []Choice, rules []convert.Rule, kept int) (groups []Group) {
	var order []string
	tallies, fixed := make([]map[string]*tally, len(choices)), map[string]bool{}
	for i, c := range choices {
		tallies[i] = map[string]*tally{}
		if c.Plan == nil {
			continue
		}
		for d := range c.Plan.Decisions() {
			if d.Action != convert.Quantize {
				continue
			}
			key := setOf(m, d.Name)
			if !slices.ContainsFunc(tallies[:i], func(of map[string]*tally) bool { return of[key] != nil }) && tallies[i][key] == nil {
				order = append(order, key)
			}
			t := tallies[i][key]
			if t == nil {
				t = &tally{format: d.Format}
				tallies[i][key] = t
			}
			elements := int64(1)
			for _, n := range d.Shape {
				elements *= n
			}
			t.names, t.elements, t.bytes = append(t.names, d.Name), t.elements+elements, t.bytes+d.Bytes
			named := func(r convert.Rule) bool { return r.Pattern.MatchString(d.Name) }
			fixed[key] = fixed[key] || slices.ContainsFunc(rules, named)
		}
	}
	for _, key := range order {
		g, keeps := Group{}, false
		for i := range choices {
			if t := tallies[i][key]; t != nil && t.elements > g.Elements {
				g.Elements, g.Weights = t.elements, t.names
			}
		}
		for i, c := range choices {
			t := tallies[i][key]
			if keeps = keeps || c.Plan == nil || t == nil || t.elements < g.Elements; t != nil && t.elements == g.Elements {
				g.Options = append(g.Options, Option{Format: t.format, Bits: 8 * t.bytes})
			}
		}
		if keeps {
			g.Options = append(g.Options, Option{Format: convert.Keep, Bits: int64(kept) * g.Elements})
		}
		if fixed[key] {
			g.Options = g.Options[:1]
		}
		groups = append(groups, g)
	}
	return groups
}

// setOf returns a name that the weights share that have one format.
func setOf(m *checkpoint.Model, weight string) string {
	if experts := family.ExpertsOf(weight); experts != "" {
		return experts
	}
	matrix, _ := m.Family().FusedWith(weight)
	return matrix
}

// Rules returns a plan as rules, one for each format but the most frequent one, main, which all other weights have. Groups that are
// fixed have none.
func (p Plan) Rules(groups []Group) (main string, rules []convert.Rule, err error) {
	patterns, counts := map[string][]string{}, map[string]int{}
	var formats []string
	for i, g := range groups {
		f := g.Options[p[i]].Format
		if len(g.Options) == 1 {
			continue
		}
		if patterns[f] == nil {
			formats = append(formats, f)
		}
		if patterns[f] = append(patterns[f], patternsOf(g)...); f == convert.Keep {
			continue
		}
		if counts[f]++; counts[f] > counts[main] {
			main = f
		}
	}
	for _, f := range formats {
		if f == main {
			continue
		}
		r, err := convert.ParseRule("^("+strings.Join(patterns[f], "|")+")$", f)
		if err != nil {
			return "", nil, err
		}
		rules = append(rules, r)
	}
	return main, rules, nil
}

// patternsOf returns regular expressions of the names of a group: one for all experts of a layer.
func patternsOf(g Group) (all []string) {
	for _, name := range g.Weights {
		text := regexp.QuoteMeta(name)
		if experts := family.ExpertsOf(name); experts != "" {
			text = regexp.QuoteMeta(experts) + `\..*`
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
