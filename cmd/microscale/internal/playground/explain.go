package playground

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
)

// Choices are what the page offers.
type Choices struct {
	Formats  []formatChoice  `json:"formats"`
	Profiles []profileChoice `json:"profiles"`
	Rules    []string        `json:"rules"` // of E8M0 scales
}

type formatChoice struct {
	Name     string    `json:"name"`
	Doc      string    `json:"doc"`
	Rules    bool      `json:"rules"` // a scale rule can be chosen
	Amax     bool      `json:"amax"`  // the scale depends on the amax of the tensor
	Profiles []string  `json:"profiles"`
	Grid     []float32 `json:"grid"` // values of the element format, ascending
}

type profileChoice struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// allProfiles is the profile that stands for all of them.
const allProfiles = "all"

func choices() *Choices {
	c := &Choices{}
	for _, p := range profile.All() {
		c.Profiles = append(c.Profiles, profileChoice{p.Name, p.Doc})
	}
	c.Profiles = append(c.Profiles, profileChoice{allProfiles, "the codes of all libraries, side by side"})
	for _, r := range quant.ScaleRules() {
		c.Rules = append(c.Rules, r.String())
	}
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		one := formatChoice{Name: f.Name, Doc: numbers.Headline(f), Rules: f.Scale == format.E8M0, Amax: f.NeedsAmax(), Grid: grid(f.Element)}
		for _, p := range profile.All() {
			if _, err := p.Quantizer(f); err == nil {
				one.Profiles = append(one.Profiles, p.Name)
			}
		}
		one.Profiles = append(one.Profiles, allProfiles)
		c.Formats = append(c.Formats, one)
	}
	return c
}

// grid returns the finite values of an element format.
func grid(element *format.Scalar) []float32 {
	var values []float32
	for code := range uint32(1) << element.Bits() {
		if v := element.Decode(code) + 0; !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) { // + 0: no -0
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// maxValues bounds the values of a request, which are a table and a picture each.
const maxValues = 1024

// explain answers as explain --format.
func explain(_ context.Context, r *Request, a *Answer) error {
	f, err := quant.Lookup(r.Format)
	if err != nil {
		return err
	}
	args := []string{"explain", "--format", f.Name}
	words := strings.FieldsFunc(r.Values, func(c rune) bool { return strings.ContainsRune(" \t\r\n,;[]()", c) })
	if len(words) > maxValues {
		return fmt.Errorf("%d values: the page explains up to %d", len(words), maxValues)
	}
	values, err := numbers.ParseAll(words)
	if err != nil {
		return err
	}
	var profiles []profile.Profile
	switch r.Profile {
	case "":
	case allProfiles:
		profiles = profile.All()
	default:
		p, err := profile.Lookup(r.Profile)
		if err != nil {
			return err
		}
		profiles = []profile.Profile{p}
	}
	if r.Profile != "" {
		args = append(args, "--profile", r.Profile)
	}
	var rule *quant.ScaleRule
	if r.ScaleRule != "" {
		rule = new(quant.ScaleRule)
		if err := rule.UnmarshalText([]byte(r.ScaleRule)); err != nil {
			return err
		}
		args = append(args, "--scale-rule", r.ScaleRule)
	}
	var amax *float32
	if text := strings.TrimSpace(r.Amax); text != "" {
		v, err := numbers.ParseAll([]string{text})
		if err != nil {
			return fmt.Errorf("amax: %w", err)
		}
		amax = &v[0]
		args = append(args, "--amax", text)
	}
	explanations, err := numbers.ExplainAll(profiles, f, rule, values, amax)
	if err != nil {
		return err
	}
	var text, document bytes.Buffer
	if err := numbers.PrintExplanations(&text, f, explanations, false); err != nil {
		return err
	}
	if err := numbers.PrintExplanations(&document, f, explanations, true); err != nil {
		return err
	}
	a.Text, a.Explanation, a.Line = text.String(), document.Bytes(), line(append(args, words...)...)
	return nil
}
