package generation

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/generation/sampling"
)

// Sampling is how the files of a model recommend to draw tokens (generation_config.json). nil: they do not say.
type Sampling struct {
	DoSample      *bool    `json:"do_sample"` // false: the most likely token
	Temperature   *float64 `json:"temperature"`
	TopK          *int     `json:"top_k"`
	TopP          *float64 `json:"top_p"`
	MinP          *float64 `json:"min_p"`
	RepeatPenalty *float64 `json:"repetition_penalty"`
}

// Apply replaces the options that the user did not give. given reports those that the user gave by their
// names: temperature, top-k, top-p, min-p, repeat-penalty.
//
// With do_sample, the temperature is 1 unless the file gives it.
func (s Sampling) Apply(o sampling.Options, given func(name string) bool) sampling.Options {
	if s.DoSample != nil && !given("temperature") {
		if o.Temperature = 1; !*s.DoSample {
			o.Temperature = 0
		}
	}
	set := func(name string, dst, value *float64) {
		if value != nil && !given(name) {
			*dst = *value
		}
	}
	if s.DoSample == nil || *s.DoSample {
		set("temperature", &o.Temperature, s.Temperature)
	}
	set("top-p", &o.TopP, s.TopP)
	set("min-p", &o.MinP, s.MinP)
	set("repeat-penalty", &o.RepeatPenalty, s.RepeatPenalty)
	if s.TopK != nil && !given("top-k") {
		o.TopK = max(*s.TopK, 0) // vLLM's -1: all tokens
	}
	return o
}

// String lists what the files say; empty if they say nothing.
func (s Sampling) String() string {
	var parts []string
	add := func(name string, value any) { parts = append(parts, fmt.Sprintf("%s %v", name, value)) }
	if s.DoSample != nil {
		add("do_sample", *s.DoSample)
	}
	for _, v := range []struct {
		name  string
		value *float64
	}{{"temperature", s.Temperature}, {"top_p", s.TopP}, {"min_p", s.MinP}, {"repetition_penalty", s.RepeatPenalty}} {
		if v.value != nil {
			add(v.name, *v.value)
		}
	}
	if s.TopK != nil {
		add("top_k", *s.TopK)
	}
	return strings.Join(parts, ", ")
}

// Recommended applies what the files of the model recommend to the options of a user (Sampling.Apply). It also returns
// lines about that, and about what the files do not declare, for the user.
func (m *Model) Recommended(o sampling.Options, given func(name string) bool) (sampling.Options, []string) {
	lines := m.Text.Notes
	text := m.Text.Sampling.String()
	if text == "" {
		return o, lines
	}
	o = m.Text.Sampling.Apply(o, given)
	used := fmt.Sprintf("temperature %g, top-k %d, top-p %g, min-p %g, repeat-penalty %g", o.Temperature, o.TopK, o.TopP, o.MinP,
		o.RepeatPenalty)
	if o.Temperature == 0 {
		used = fmt.Sprintf("the most likely token, repeat-penalty %g", o.RepeatPenalty)
	}
	return o, append(lines[:len(lines):len(lines)], fmt.Sprintf("generation_config.json says %s. Sampling: %s.", text, used))
}
