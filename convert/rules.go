package convert

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
)

// A Rule says how the weights are quantized whose names match.
type Rule struct {
	Pattern   *regexp.Regexp
	Quantizer quant.Quantizer // the zero Quantizer: they stay as they are
	Scheme    string          // of the convention for the format; "": as without rules
	Default   bool            // it may quantize nothing, as other rules or Exclude may match the same weights
}

// Keeps reports whether the weights stay as they are.
func (r Rule) Keeps() bool { return r.Quantizer.Format.Element == nil }

// Keep is the name, in place of a format, of weights that stay as they are.
const Keep = "keep"

// ParseRule returns the rule for the weights whose names match a regular expression: to is the name of a format, of a format and
// a scheme, as FORMAT:SCHEME, or Keep. The quantizer has no behavior but its format.
func ParseRule(pattern, to string) (r Rule, err error) {
	if r.Pattern, err = compile(pattern); err != nil {
		return r, err
	}
	name, scheme, named := strings.Cut(to, ":")
	if strings.EqualFold(name, Keep) && !named {
		return r, nil
	}
	if r.Quantizer.Format, err = checkpoint.LookupFormat(name); err != nil {
		return r, fmt.Errorf("%w; or %s", err, Keep)
	}
	r.Scheme = scheme
	return r, nil
}

// compile compiles a pattern of names.
func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
		return nil, fmt.Errorf("%q is not a regular expression: %s", limits.Text(pattern), bad.Code)
	}
	return re, err
}

// String returns a rule as PATTERN=FORMAT.
func (r Rule) String() string { return r.Pattern.String() + "=" + r.to() }

// to returns what ParseRule parses.
func (r Rule) to() string {
	switch {
	case r.Keeps():
		return Keep
	case r.Scheme != "":
		return r.Quantizer.Format.Name + ":" + r.Scheme
	}
	return r.Quantizer.Format.Name
}

// Reasons for weights of a plan with rules.
var (
	keptByRule = Reason{causeUser, "kept by a rule"}
	unmatched  = Reason{causeUser, "matched by no rule"}
)

// treatments returns what the options do with weights: the quantizers of the rules, and last that of all others. They are those
// that the method and the clients of the convention need, with notes of what changed. The zero Quantizer leaves weights as they are.
// Formats that the method does not support are rounded to nearest beside others.
func (o QuantizeOptions) treatments(c *checkpoint.Convention) (all []quant.Quantizer, notes []string, err error) {
	var asked []quant.Quantizer
	for _, r := range o.Rules {
		asked = append(asked, r.Quantizer)
	}
	unsupported := func(f quant.Format) bool {
		return !o.Method.Supports(f)
	}
	none := !slices.ContainsFunc(o.Formats(), func(f quant.Format) bool { return !unsupported(f) })
	note := func(text string) {
		if text != "" && !slices.Contains(notes, text) {
			notes = append(notes, text)
		}
	}
	for _, q := range append(asked, o.Quantizer) {
		if _, encoded := encoderOf(q.Format); q.Format.Scaled() || encoded {
			if unsupported(q.Format) && !none {
				note(fmt.Sprintf("method %s does not support %s: these weights are rounded to nearest", o.Method, q.Format))
			} else if q, err = o.Method.Quantizer(q); err != nil {
				return nil, nil, err
			}
		}
		if q.Format.Scaled() {
			var changed string
			if q, changed, err = c.Quantizer(q); err != nil {
				return nil, nil, err
			}
			note(changed)
		}
		all = append(all, q)
	}
	return all, notes, nil
}

// Quantizers returns the quantizers that have a format: that of weights without a rule first.
func (o QuantizeOptions) Quantizers() (all []quant.Quantizer) {
	if o.Quantizer.Format.Element != nil {
		all = append(all, o.Quantizer)
	}
	for _, r := range o.Rules {
		if !r.Keeps() {
			all = append(all, r.Quantizer)
		}
	}
	return all
}

// Formats returns the block formats of the options, without duplicates, that of the weights without a rule first.
func (o QuantizeOptions) Formats() []quant.Format { return formatsOf(o.Quantizers()) }

// formatsOf returns the block formats of quantizers, without duplicates, in their order.
func formatsOf(quantizers []quant.Quantizer) (all []quant.Format) {
	for _, q := range quantizers {
		same := func(f quant.Format) bool { return f.Name == q.Format.Name }
		if q.Format.Element != nil && !slices.ContainsFunc(all, same) {
			all = append(all, q.Format)
		}
	}
	return all
}

// schemeOf returns the scheme that the options name for a format; "" if none. It returns an error if two are named.
func (o QuantizeOptions) schemeOf(f quant.Format) (name string, err error) {
	if f.Name == o.Quantizer.Format.Name {
		name = o.Scheme
	}
	for _, r := range o.Rules {
		switch {
		case r.Scheme == "" || r.Quantizer.Format.Name != f.Name:
		case name != "" && !strings.EqualFold(name, r.Scheme):
			return "", fmt.Errorf("the rules name the schemes %s and %s for %s: one checkpoint has one scheme for a format", name, r.Scheme, f)
		default:
			name = r.Scheme
		}
	}
	return name, nil
}

// noteSchemes returns notes of rules whose scheme is that of weights that others quantize without naming one.
func (o QuantizeOptions) noteSchemes() (notes []string) {
	noted := map[string]bool{}
	for _, r := range o.Rules {
		f := r.Quantizer.Format.Name
		same := func(other Rule) bool { return !other.Keeps() && other.Quantizer.Format.Name == f && other.Scheme == "" }
		if r.Scheme == "" || noted[f] || !same(Rule{Quantizer: o.Quantizer, Scheme: o.Scheme}) && !slices.ContainsFunc(o.Rules, same) {
			continue
		}
		noted[f] = true
		notes = append(notes, fmt.Sprintf("scheme %s of the rule '%s' is that of all weights in %s: one checkpoint has one scheme for a format",
			r.Scheme, r, f))
	}
	return notes
}

// admitMixed returns an error if the convention does not support several block formats and the options name several.
func admitMixed(c *checkpoint.Convention, formats []quant.Format) error {
	if len(formats) < 2 || c.Mixes() {
		return nil
	}
	var names []string
	for _, other := range checkpoint.Conventions() {
		if other.Mixes() {
			names = append(names, other.Name)
		}
	}
	return fmt.Errorf("convention %s stores one block format in a checkpoint, not %s: choose convention %s", c, formatNames(formats),
		strings.Join(names, " or "))
}

// chosen returns how a weight that has any of these names is quantized: by the first rule that matches. If the
// weight stays as it is, why says why.
func (s selection) chosen(names ...string) (q *quant.Quantizer, why Reason) {
	is := func(p *regexp.Regexp) bool { return slices.ContainsFunc(names, p.MatchString) }
	if slices.ContainsFunc(s.exclude, is) {
		return nil, excluded
	}
	i := slices.IndexFunc(s.rules, func(r Rule) bool { return is(r.Pattern) })
	if i < 0 {
		i, why = len(s.rules), unmatched
	} else {
		why = keptByRule
	}
	if s.treatments[i].Format.Element == nil {
		return nil, why
	}
	return &s.treatments[i], Reason{}
}

// admitRules returns an error if a rule quantizes nothing: it follows others that match the same weights, or these
// stay unquantized by default.
// used are quantizers that are used although no weight has their format.
func (p *Plan) admitRules(s selection, used map[*quant.Quantizer]bool) error {
	for _, d := range p.decisions {
		used[d.quantizer] = true
	}
	var idle []string // default rules that quantize nothing
	for i, r := range s.rules {
		if r.Keeps() || used[&s.treatments[i]] {
			continue
		}
		for _, d := range p.decisions {
			matched := slices.ContainsFunc(s.names(d.Weight), r.Pattern.MatchString)
			if matched && d.action != Quantize && d.reason.cause != causeUser && len(d.Shape) > 1 {
				return fmt.Errorf("the rule '%s' quantizes no weight: %s stays as it is (%s)%s", r, d.Name, d.reason, includeAdvice(d))
			}
		}
		if r.Default {
			idle = append(idle, r.String())
			continue
		}
		return fmt.Errorf("the rule '%s' quantizes no weight: those that it matches are vectors, or match an earlier rule or are excluded: "+
			"put it before the others, or omit it", r)
	}
	switch n := len(idle); {
	case n == 1:
		p.Notes = append(p.Notes, fmt.Sprintf("the rule '%s' quantizes no weight: others come before it, or its weights are excluded", idle[0]))
	case n > 1:
		p.Notes = append(p.Notes, fmt.Sprintf("%d rules, the first '%s', quantize no weight: others come before them, or their weights are "+
			"excluded", n, idle[0]))
	}
	return nil
}

// includeAdvice returns, as the end of a message, how a weight that stays unquantized by default is quantized.
func includeAdvice(d decision) string {
	if d.reason.cause == causeRole {
		return ": include it, too"
	}
	return ""
}

// leftByRules reports whether rules leave a weight as it is.
func (d decision) leftByRules() bool { return d.reason == keptByRule || d.reason == unmatched }

// admitKept returns an error if weights of the source keep codes of another format than the convention stores beside others.
func (p *Plan) admitKept() error {
	var formats []quant.Format
	for _, s := range p.Shares() {
		formats = append(formats, s.Format)
	}
	return admitMixed(p.convention, formats)
}

// admitSets returns an error if rules give different formats to weights that clients fuse into one matrix, or to the
// experts of a layer. It adds a note if some of them are excluded, which some clients read.
func (p *Plan) admitSets() error {
	if !p.convention.LinearOnly() {
		return nil // tensors are not fused
	}
	first, noted := map[string]int{}, false // decision of a set
	differ := func(set string, i int, fused bool, what string) error {
		d := p.decisions[i]
		if d.action != Quantize && !d.leftByRules() && (d.reason != excluded || !fused) {
			return nil
		}
		j, ok := first[set]
		if !ok {
			first[set] = i
			return nil
		}
		if a, b := p.becomes(p.decisions[j]), p.becomes(d); a != b && (d.reason == excluded || p.decisions[j].reason == excluded) {
			if !noted {
				p.Notes = append(p.Notes, fmt.Sprintf("%s is %s and %s is %s, but %s: exclude all of them or none", p.decisions[j].Name, a, d.Name,
					b, what))
			}
			noted = true
			return nil
		} else if a != b {
			return fmt.Errorf("%s is %s and %s is %s, but %s: match all of them with one rule", p.decisions[j].Name, a, d.Name, b, what)
		}
		if fused && d.coded() && p.formatOf(d).Global && d.action != p.decisions[j].action {
			return fmt.Errorf("%s and %s would have different global scales, as one of them keeps its codes, but %s: match all of them with one "+
				"rule", p.decisions[j].Name, d.Name, what)
		}
		return nil
	}
	for i, d := range p.decisions {
		if matrix, parts := p.source.Family().FusedWith(d.Name); len(parts) > 1 && len(d.Shape) == 2 {
			if err := differ(matrix, i, true, fmt.Sprintf("engines fuse %s into one matrix, of one format", strings.Join(parts, ", "))); err != nil {
				return err
			}
		}
		if module := family.ExpertsOf(d.Name); module != "" {
			if err := differ(module, i, false, fmt.Sprintf("engines have one format for all of %s", module)); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleFormat sets the format to that of the result if all quantized weights have the same, and reports whether they
// have: rules may leave none of Format.
func (p *Plan) settleFormat() bool {
	shares := p.Shares()
	if len(shares) == 1 {
		p.setFormat(shares[0].Format)
	}
	return len(shares) == 1
}

// becomes names what a weight becomes in messages: a format, or unquantized.
func (p *Plan) becomes(d decision) string {
	if d.coded() {
		return p.formatOf(d).Name
	}
	return "unquantized"
}

// A Share is the weights of one block format in the result.
type Share struct {
	Format  quant.Format
	Weights int
	Bytes   int64 // in the result, with scales
}

// Shares returns the block formats of the weights of the result, by their names.
func (p *Plan) Shares() (shares []Share) {
	found := map[string]int{}
	for _, d := range p.decisions {
		if !d.coded() {
			continue
		}
		f := p.formatOf(d)
		i, ok := found[f.Name]
		if !ok {
			i = len(shares)
			found[f.Name], shares = i, append(shares, Share{Format: f})
		}
		shares[i].Weights++
		shares[i].Bytes += d.bytes()
	}
	slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(a.Format.Name, b.Format.Name) })
	return shares
}

// coded reports whether the result has codes of a weight.
func (d decision) coded() bool {
	return d.action == Quantize || d.action == Relabel && d.Quantized()
}
