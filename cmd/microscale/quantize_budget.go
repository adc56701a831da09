package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/budget"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// A budgetFlag is --budget with --formats.
type budgetFlag struct {
	bits *float64
	list *flags.List[quant.Format]
}

func addBudget(cmd *cobra.Command) *budgetFlag {
	b := &budgetFlag{bits: cmd.Flags().Float64("budget", 0, "spend at most `BITS` per weight of the linear layers, scales included: give "+
		"each set of weights the one of --formats with the least measured divergence on --text")}
	b.list = flags.AddList(cmd, "formats", "with --budget: the formats to mix, `NAMES`; "+quant.BF16.Name+" leaves weights as they are",
		"nvfp4,mxfp8,bf16", flags.Names(quant.Formats()), quant.Lookup)
	flags.Needs(cmd, "formats", "budget")
	return b
}

// exclude makes other flags of cmd an error beside a budget.
func (b *budgetFlag) exclude(cmd *cobra.Command) {
	for _, other := range []string{"format", "plan", "requantize", "activations", "shard", "distill"} {
		flags.Exclusive(cmd, "budget", other)
	}
}

func (b *budgetFlag) given() bool { return *b.bits != 0 }

// check returns an error for a budget that cannot be measured.
func (b *budgetFlag) check(text *calibrationText) error {
	scaled := 0
	for _, f := range b.list.Values() {
		switch {
		case f.Scaled():
			scaled++
		case f.Name != quant.BF16.Name:
			return show.Misuse("--formats: %s has no scales: name block-scaled formats, and %s for weights that stay as they are", f, quant.BF16)
		}
	}
	switch {
	case !b.given():
		return nil
	case !(*b.bits > 0):
		return show.Misuse("--budget %g: want a number of bits per weight, such as 5", *b.bits)
	case text.file == "":
		return show.Misuse("--budget needs --text FILE: errors of weights do not tell which of them the model feels, and mixtures chosen by " +
			"them lost more than one format for all; the divergence on a text does")
	case scaled == 0 || len(b.list.Values()) < 2:
		return show.Misuse("--formats: name at least two formats, one of them block-scaled")
	}
	return nil
}

// formats returns the formats that the command needs: those of the budget that have scales, the smallest first, and others.
func (b *budgetFlag) formats(others []quant.Format) (all []quant.Format) {
	if b.given() {
		all = slices.DeleteFunc(slices.Clone(b.list.Values()), func(f quant.Format) bool { return !f.Scaled() })
		slices.SortStableFunc(all, func(a, b quant.Format) int { return int(1e6 * (a.BitsPerElement() - b.BitsPerElement())) })
	}
	for _, f := range others {
		if !slices.ContainsFunc(all, func(g quant.Format) bool { return g.Name == f.Name }) {
			all = append(all, f)
		}
	}
	return all
}

// A budgetChoice is a budget before it is measured, and then what was chosen.
type budgetChoice struct {
	bits       float64
	groups     []budget.Group
	formats    []string                   // with scales, the smallest first
	raw        map[string]quant.Quantizer // of these
	quantizers map[string]quant.Quantizer // as the method and the convention change them
	user       []convert.Rule
	options    convert.QuantizeOptions // of a plan that has all formats
	result     *conversion.Budget      // what was chosen, and why
}

// plan returns the groups of weights of a checkpoint, from headers alone. Formats that the convention or the client does not store beside
// each other are an error.
func (b *budgetFlag) plan(ctx context.Context, source *hf.Checkpoint, o convert.QuantizeOptions, raw map[string]quant.Quantizer) (
	*budgetChoice, error) {
	c := &budgetChoice{bits: *b.bits, raw: raw, quantizers: map[string]quant.Quantizer{}, user: o.Rules, options: o}
	m := checkpoint.Read(source)
	if o.Client == "" && o.Convention == "" {
		c.options.Convention = m.DefaultConvention(b.formats(nil)...).Name
	}
	var choices []budget.Choice
	kept := 16
	for _, f := range b.formats(nil) {
		q := raw[f.Name]
		if o.Method.Supports(f) {
			var err error
			if q, err = o.Method.Quantizer(q); err != nil {
				return nil, err
			}
		}
		one := c.options
		one.Quantizer, one.Method = q, 0 // the method needs statistics
		plan, err := convert.PlanQuantize(ctx, source, one)
		if err != nil {
			return nil, fmt.Errorf("all in %s: %w", f, err)
		}
		for d := range plan.Decisions() {
			if d.Action != convert.Quantize && len(d.Shape) == 2 && d.Format == quant.F32.Name {
				kept = 32
			}
		}
		c.formats, c.quantizers[f.Name] = append(c.formats, f.Name), plan.Quantizer
		choices = append(choices, budget.Choice{Format: f.Name, Plan: plan})
	}
	if slices.ContainsFunc(b.list.Values(), func(f quant.Format) bool { return !f.Scaled() }) {
		choices = append(choices, budget.Choice{Format: convert.Keep})
	}
	c.groups = budget.Groups(m, choices, o.Rules, kept)
	if most := c.most(); c.bits >= most {
		return nil, fmt.Errorf("--budget %g: the largest format needs %.4g bits per weight: quantize to it, or allow fewer", c.bits, most)
	}
	if _, err := budget.Allocate(c.groups, c.bits); err != nil {
		return nil, fmt.Errorf("--budget: %w", err)
	}
	all := make(budget.Plan, len(c.groups)) // a mixture of all formats
	for i, g := range c.groups {
		all[i] = i % len(g.Options)
	}
	var err error
	if c.options, err = c.with(c.options, all); err != nil {
		return nil, err
	}
	check := c.options
	check.Method = 0
	if _, err := convert.PlanQuantize(ctx, source, check); err != nil {
		return nil, fmt.Errorf("mix %s: %w", strings.Join(c.formats, " and "), err)
	}
	return c, nil
}

// most returns the bits per weight of the largest options.
func (c *budgetChoice) most() float64 {
	plan := make(budget.Plan, len(c.groups))
	for i, g := range c.groups {
		for j, o := range g.Options {
			if o.Bits > g.Options[plan[i]].Bits {
				plan[i] = j
			}
		}
	}
	return plan.Bits(c.groups)
}

// with returns options of a plan, after the rules of the user.
func (c *budgetChoice) with(o convert.QuantizeOptions, plan budget.Plan) (convert.QuantizeOptions, error) {
	main, rules, err := plan.Rules(c.groups)
	if err != nil {
		return o, err
	}
	for i, r := range rules {
		if !r.Keeps() {
			rules[i].Quantizer = c.raw[r.Quantizer.Format.Name]
		}
	}
	o.Quantizer, o.Rules = c.raw[main], append(slices.Clone(c.user), rules...)
	return o, nil
}

// budgetSuffix is in the names of what a budget measures, beside a destination.
const budgetSuffix = windows.OwnName + "budget"

// measured returns the path of the file with the divergences of a budget.
func measured(dst string) string { return dst + budgetSuffix + ".json" }

// evaluation returns what measures the groups of a model for a destination.
func (c *budgetChoice) evaluation(cmd *cobra.Command, model, dst string, text *calibrationText, f *runFlags) (*evaluation.Budget, error) {
	m := &evaluation.Budget{Groups: c.groups, Quantizers: c.quantizers, File: measured(dst)}
	m.Model, m.Text, m.Stream, m.Threads, m.Memory, m.Stderr = model, text.file, dst+budgetSuffix, int(*f.threads), int64(*text.memory),
		cmd.ErrOrStderr()
	var err error
	m.Method, err = windows.LookupMethod("all")
	return m, err
}

// checkText returns an error for a text that is too short, before any work.
func (c *budgetChoice) checkText(cmd *cobra.Command, model, dst string, text *calibrationText, f *runFlags) error {
	m, err := c.evaluation(cmd, model, dst, text, f)
	if err != nil {
		return err
	}
	return m.CheckText(cmd.Context())
}

// measure measures the groups, divides the bits, and compares the mixture with the best format for all that takes no more. It returns the
// options of the one to write, and sets the result.
func (c *budgetChoice) measure(cmd *cobra.Command, model, dst string, text *calibrationText, o convert.QuantizeOptions, f *runFlags) (
	convert.QuantizeOptions, error) {
	m, err := c.evaluation(cmd, model, dst, text, f)
	if err != nil {
		return o, err
	}
	m.Codes, m.Statistics = o.Method, o.Statistics
	flags.BoundGarbage()
	err = m.Measure(cmd.Context())
	if errors.Is(err, evaluation.ErrOtherRun) {
		return o, otherRun(dst, err, m.File)
	}
	text.kept = append(text.kept, m.File)
	if err != nil {
		return o, err
	}
	mixture, err := budget.Allocate(c.groups, c.bits)
	if err != nil {
		return o, err
	}
	plans, formats := []budget.Plan{mixture}, []string{conversion.MixtureKept}
	for _, name := range c.formats {
		if p, ok := budget.Uniform(c.groups, name); ok && p.Bits(c.groups) <= c.bits {
			plans, formats = append(plans, p), append(formats, name)
		}
	}
	if len(plans) == 1 {
		return o, errors.New("--budget: no format for all takes as few bits, with which the mixture could be compared: allow more")
	}
	best := slices.IndexFunc(plans[1:], func(p budget.Plan) bool { return slices.Equal(p, mixture) }) + 1
	c.result = &conversion.Budget{Bits: c.bits, Kept: formats[best], Format: formats[best]}
	if best == 0 {
		compared, err := m.Compare(cmd.Context(), plans...)
		if err != nil {
			return o, err
		}
		best = 1
		for i := range plans[1:] {
			if compared[1+i].KL < compared[best].KL {
				best = 1 + i
			}
		}
		less := compared[best].Less
		if c.result.Format, c.result.Kept = formats[best], formats[best]; less.High < 0 {
			c.result.Kept = conversion.MixtureKept
		}
		c.result.Windows = compared[0].Windows
		c.result.Mixture.KL, c.result.Uniform.KL = show.Number(compared[0].KL), show.Number(compared[best].KL)
		c.result.Difference = [3]show.Number{show.Number(less.Mean), show.Number(less.Low), show.Number(less.High)}
	}
	c.result.Mixture.Bits, c.result.Uniform.Bits = mixture.Bits(c.groups), plans[best].Bits(c.groups)
	if c.result.Kept == conversion.MixtureKept {
		best = 0
	}
	return c.with(o, plans[best])
}
