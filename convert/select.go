package convert

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/quant"
)

// A Reason says why a weight is not quantized. It is the zero Reason for one that is, and for all of a plan
// that quantizes nothing.
type Reason struct {
	cause  cause
	Detail string // for people, such as "output head"
}

// String returns the detail.
func (r Reason) String() string { return r.Detail }

// A cause is the kind of a reason.
type cause uint8

const (
	noCause         cause = iota
	causeClient           // the client of the plan cannot read it
	causeConvention       // the convention does not store its module, or its shape in the format
	causeValues           // its elements are not floating-point values
	causeUser             // QuantizeOptions.Exclude matches it, or Rules leave it
	causeRole             // what it is in the model stays unquantized by default
)

// excluded is the reason for a weight that QuantizeOptions.Exclude matches.
var excluded = Reason{causeUser, "excluded"}

// A selection says which of the weights that shape and dtype allow are quantized.
type selection struct {
	include, exclude []*regexp.Regexp // see QuantizeOptions
	rules            []Rule
	treatments       []quant.Quantizer // see QuantizeOptions.treatments

	family *family.Model // of the source

	rejected rejections // by the client

	further map[string][]string // further names of weights of GGUF files by name, which patterns may match
}

// names returns the names of a weight.
func (s selection) names(w *checkpoint.Weight) []string {
	return append([]string{w.Name}, s.further[w.Name]...)
}

// rejections are the reasons why a client cannot read weights, by the name of the weight.
type rejections map[string]string

// of returns why the client cannot read a weight, or the single experts of one that holds those of a layer;
// "" if it can.
func (r rejections) of(w *checkpoint.Weight) string {
	for _, module := range w.ExpertModules() {
		if why := r[module+".weight"]; why != "" {
			return why
		}
	}
	return r[w.Name]
}

// main returns the quantizer of weights that no rule matches, or that of the first rule with one.
func (s selection) main() quant.Quantizer {
	all := s.treatments
	if last := all[len(all)-1]; last.Format.Element != nil {
		return last
	}
	for _, q := range all {
		if q.Format.Element != nil {
			return q
		}
	}
	return quant.Quantizer{}
}

// decide returns how a weight, which may have further names, is quantized: nil, and why, if it is not.
func (s selection) decide(w *checkpoint.Weight, c *checkpoint.Convention, names ...string) (*quant.Quantizer, Reason) {
	q, kept := s.chosen(append(names, w.Name)...)
	if why := s.reason(w, q, kept, c); why.cause != noCause {
		return nil, why
	}
	return q, Reason{}
}

// reason returns why a weight is not quantized; the zero Reason if it is. q and kept are those that chosen returns.
func (s selection) reason(w *checkpoint.Weight, q *quant.Quantizer, kept Reason, c *checkpoint.Convention) Reason {
	if why := s.rejected.of(w); why != "" {
		return Reason{causeClient, why}
	}
	switch why := c.RejectsExperts(w); {
	case why != "":
		return Reason{causeConvention, why}
	case w.ExpertsKnown(): // the convention supports them
	case len(w.Shape) != 2:
		return Reason{causeConvention, dimensions(len(w.Shape))}
	}
	if !w.Dense() {
		return Reason{causeValues, w.FormatName() + " elements"}
	}
	if kept.cause != noCause {
		return kept
	}
	included := matches(s.include, s.names(w)...)
	for _, role := range s.family.Roles(w.Name, w.Shape) {
		switch {
		case !included:
			return Reason{causeRole, role.Name}
		case role.Other && c.LinearOnly() && !(c.OneFile() && role.Name == "embedding" && len(w.Shape) == 2): // which llama.cpp decodes
			return Reason{causeConvention, fmt.Sprintf("%s: %s supports linear modules only", role.Name, c)}
		}
	}
	if why := c.Rejects(q.Format, w.Name, w.Shape); why != "" {
		return Reason{causeConvention, why}
	}
	return Reason{}
}

// otherModule returns why a weight does not belong to a linear module, or "".
func otherModule(m *family.Model, w *checkpoint.Weight) string {
	for _, role := range m.Roles(w.Name, w.Shape) {
		if role.Other {
			return role.Name
		}
	}
	return ""
}

func dimensions(n int) string {
	if n == 1 {
		return "has 1 dimension"
	}
	return fmt.Sprintf("has %d dimensions", n)
}

// matched returns an error if a pattern matches no weight: it is probably misspelled.
func (s selection) matched(m *checkpoint.Model) error {
	var ruled []*regexp.Regexp
	for _, r := range s.rules {
		ruled = append(ruled, r.Pattern)
	}
	for _, list := range []struct {
		name     string
		patterns []*regexp.Regexp
	}{{"include", s.include}, {"exclude", s.exclude}, {"rule", ruled}} {
		for _, p := range list.patterns {
			named := func(w *checkpoint.Weight) bool { return slices.ContainsFunc(s.names(w), p.MatchString) }
			if !slices.ContainsFunc(m.Weights, func(w *checkpoint.Weight) bool { return named(w) || slices.ContainsFunc(w.Split(), named) }) {
				return fmt.Errorf("the %s pattern '%s' matches no weight of %s: use the names of its weights", list.name, p, m.Source.Path)
			}
		}
	}
	return nil
}

// matches reports whether one of the patterns matches one of the names.
func matches(patterns []*regexp.Regexp, names ...string) bool {
	return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return slices.ContainsFunc(names, p.MatchString) })
}
