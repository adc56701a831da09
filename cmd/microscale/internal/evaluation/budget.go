package evaluation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/cmd/microscale/internal/budget"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Budget measures the divergence of a model whose groups of weights have other formats. What it measured stays in a file, so that
// the command need not repeat it.
type Budget struct {
	Evaluation // of Model on Text, in which Stream is set
	Groups     []budget.Group
	Quantizers map[string]quant.Quantizer // by format; weights of other formats stay as they are
	Codes      calibration.Method
	Statistics *calibration.Statistics // of the inputs; nil for calibration.Nearest
	File       string

	linears map[string]calibration.Linear // by name
	groups  map[string]int                // of a linear layer by its name
	layers  []int                         // of groups; -1: no linear layer
}

// A text is divided into windows of budgetContext tokens: the first measuredTokens of measuredWindows of them measure the groups, and at
// most checkedWindows others compare plans.
const (
	budgetContext   = 256
	measuredTokens  = 128
	measuredWindows = 4
	checkedWindows  = 32
	budgetWindows   = 2 * measuredWindows // the minimum of all
)

// A measurement is what the file of a Budget holds.
type measurement struct {
	Groups struct {
		Key string
		KL  [][]float64 // of the options of the groups
	}
	Plans struct {
		Key     string
		Windows [][]WindowReceipt // by plan
	}
}

// hasGroups reports whether it has a divergence of every option of groups, and no more.
func (m measurement) hasGroups(groups []budget.Group) bool {
	return slices.EqualFunc(m.Groups.KL, groups, func(kl []float64, g budget.Group) bool { return len(kl) == len(g.Options) })
}

// hasPlans reports whether it has a number of plans, each in the same windows.
func (m measurement) hasPlans(n int) bool {
	list := m.Plans.Windows
	return len(list) == n && !slices.ContainsFunc(list, func(w []WindowReceipt) bool { return len(w) == 0 || len(w) != len(list[0]) })
}

// read returns what the file holds, nothing if it is damaged or missing.
func (b *Budget) read() (m measurement) {
	data, err := limits.ReadFile(b.File, maxReceipt)
	if err != nil || json.Unmarshal(data, &m) != nil {
		return measurement{}
	}
	return m
}

func (b *Budget) write(m measurement) error {
	data, err := json.Marshal(m)
	if err == nil {
		err = durable.WriteWhole(b.File, data, os.Rename)
	}
	return err
}

// CheckText returns an error for a text that is too short, before any work.
func (b *Budget) CheckText(ctx context.Context) error {
	_, err := b.run("", measuredPart).readWindows(ctx)
	return err
}

// Measure sets the divergence of every option of every group. With a method that solves, groups are measured with the scales that
// it searches, because one group alone needs no other codes to be compared with another. A file of another measurement is an error, which
// wraps ErrOtherRun.
func (b *Budget) Measure(ctx context.Context) error {
	m := b.read()
	options := [][2]int{} // of the variants
	run := b.run("groups", measuredPart)
	run.known = func(key string) (bool, error) {
		if m.Groups.Key != "" && m.Groups.Key != key {
			return false, otherRun(m.Groups.Key, key)
		}
		m.Groups.Key = key
		return m.hasGroups(b.Groups), nil
	}
	run.variants = func(model *stack) (stacks []windows.Stack, err error) {
		if err := b.find(model); err != nil {
			return nil, err
		}
		for i, g := range b.Groups {
			for j, o := range g.Options {
				if _, ok := b.Quantizers[o.Format]; !ok || len(g.Options) == 1 {
					continue
				}
				plan := func(group int) string {
					if group != i {
						return ""
					}
					return o.Format
				}
				stacks = append(stacks, &fork{variant{stack: model, budget: b, format: plan, method: min(b.Codes, calibration.Search)}, b.layers[i]})
				options = append(options, [2]int{i, j})
			}
		}
		return stacks, nil
	}
	r, err := run.Run(ctx)
	if err != nil {
		return err
	}
	if r.result != nil {
		m.Groups.KL = make([][]float64, len(b.Groups))
		for i, g := range b.Groups {
			m.Groups.KL[i] = make([]float64, len(g.Options))
		}
		for k, c := range r.result.Comparisons {
			m.Groups.KL[options[k][0]][options[k][1]] = mean(c.KL)
		}
		if err := b.write(m); err != nil {
			return err
		}
	}
	for i, kl := range m.Groups.KL {
		for j, v := range kl {
			b.Groups[i].Options[j].KL = v
		}
	}
	return nil
}

// mean returns the mean of divergences, at least 0, which rounding may exceed.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return max(0, sum/float64(len(values)))
}

// A Compared is the divergence of a plan from the original.
type Compared struct {
	KL      float64
	Less    Paired // the divergence of the first plan less that of this one
	Windows int
}

// Compare measures plans on other windows than Measure, each with its method, and compares the first with the others.
func (b *Budget) Compare(ctx context.Context, plans ...budget.Plan) ([]Compared, error) {
	m := b.read()
	run := b.run(fmt.Sprintf("plans %v", plans), checkedPart)
	run.known = func(key string) (bool, error) {
		known := m.Plans.Key == key && m.hasPlans(len(plans))
		m.Plans.Key = key
		return known, nil
	}
	var sizes []int
	pick := run.pick
	run.pick = func(all []windows.Window) (picked []windows.Window) {
		picked, sizes = pick(all), nil
		for _, w := range picked {
			sizes = append(sizes, w.Scored())
		}
		return picked
	}
	run.variants = func(model *stack) (stacks []windows.Stack, err error) {
		if err := b.find(model); err != nil {
			return nil, err
		}
		for _, p := range plans {
			format := func(group int) string {
				if g := b.Groups[group]; len(g.Options) > 1 {
					return g.Options[p[group]].Format
				}
				return ""
			}
			stacks = append(stacks, &variant{stack: model, budget: b, format: format, method: b.Codes})
		}
		return stacks, nil
	}
	r, err := run.Run(ctx)
	if err != nil {
		return nil, err
	}
	if r.result != nil {
		m.Plans.Windows = nil
		for _, c := range r.result.Comparisons {
			m.Plans.Windows = append(m.Plans.Windows, windowReceipts(c, sizes))
		}
		if err := b.write(m); err != nil {
			return nil, err
		}
	}
	var all []Compared
	none := make([]WindowReceipt, len(m.Plans.Windows[0]))
	value := func(w WindowReceipt) float64 { return w.KL }
	for _, list := range m.Plans.Windows {
		all = append(all, Compared{paired(list, none, value).Mean, paired(m.Plans.Windows[0], list, value), len(list)})
	}
	return all, nil
}

// run returns the evaluation of a part of the text.
func (b *Budget) run(what string, pick func([]windows.Window) []windows.Window) Evaluation {
	e := b.Evaluation
	e.Method.Context, e.pick = budgetContext, pick
	statistics := ""
	if b.Statistics != nil {
		statistics = b.Statistics.Identity()
	}
	var options [][]budget.Option
	for _, g := range b.Groups {
		one := slices.Clone(g.Options)
		for i := range one {
			one[i].KL = 0
		}
		options = append(options, one)
	}
	e.what = fmt.Sprintf("budget: %s, %v, %v, %s %s", what, options, b.Quantizers, b.Codes, statistics)
	for _, q := range b.Quantizers {
		e.Formats = append(e.Formats, q.Format)
	}
	slices.SortFunc(e.Formats, func(a, b quant.Format) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	return e
}

// measuredPart returns the windows that measure groups, spread over the text; none of a text that is too short.
func measuredPart(all []windows.Window) (part []windows.Window) {
	for i := range measuredWindows {
		if len(all) < budgetWindows {
			break
		}
		w := all[measuredWindow(i, len(all))]
		w.Tokens = w.Tokens[:min(measuredTokens, len(w.Tokens))]
		part = append(part, w)
	}
	return part
}

// measuredWindow returns the place of a measured window among n.
func measuredWindow(i, n int) int { return (2*i + 1) * n / (2 * measuredWindows) }

// checkedPart returns the windows that compare plans, spread over the text.
func checkedPart(all []windows.Window) (part []windows.Window) {
	measured := map[int]bool{}
	for i := range measuredWindows {
		measured[measuredWindow(i, len(all))] = true
	}
	var rest []windows.Window
	for i, w := range all {
		if !measured[i] {
			rest = append(rest, w)
		}
	}
	n := min(len(rest), checkedWindows)
	for i := range n {
		part = append(part, rest[i*len(rest)/n])
	}
	return part
}

// find finds the linear layers of the groups. A group without one, which the model does not compute, is an error.
func (b *Budget) find(model *stack) error {
	of := map[string]int{} // groups by the names of their weights, and of the modules of experts
	for i, g := range b.Groups {
		for _, name := range g.Weights {
			of[name] = i
			if experts := family.ExpertsOf(name); experts != "" {
				of[experts] = i
			}
		}
	}
	b.linears, b.groups, b.layers = map[string]calibration.Linear{}, map[string]int{}, slices.Repeat([]int{-1}, len(b.Groups))
	for layer, list := range model.linears() {
		for _, l := range list {
			for _, module := range l.Modules {
				i, ok := of[module+".weight"]
				if !ok {
					if i, ok = of[family.ExpertsOf(module+".weight")]; !ok {
						continue
					}
				}
				if before, has := b.groups[l.Name]; has && before != i {
					return fmt.Errorf("%s and %s are one linear layer of the model, but have formats of their own: give them one by --rule",
						b.Groups[before].Weights[0], b.Groups[i].Weights[0])
				}
				b.linears[l.Name], b.groups[l.Name], b.layers[i] = l, i, layer
			}
		}
	}
	for i, layer := range b.layers {
		if layer < 0 && len(b.Groups[i].Options) > 1 {
			return fmt.Errorf("%s is no linear layer of the decoder, so that nothing measures its formats: give it one by --rule",
				b.Groups[i].Weights[0])
		}
	}
	return nil
}

// A variant is a model whose linear layers are quantized from the original, each to the format of its group.
type variant struct {
	*stack
	budget *Budget
	format func(group int) string // the name of no quantizer: the group stays as it is
	method calibration.Method
	inputs func(linear string) (quant.Format, bool) // of quantized activations; nil: none are
}

// Layer returns layer i with the linear layers quantized that change.
func (v *variant) Layer(_ context.Context, _ int, original windows.Layer) (windows.Layer, error) {
	low, err := original.(*layer).QuantizeBy(v.rounding, v.inputs)
	if err != nil {
		return nil, err
	}
	return &layer{low}, nil
}

// rounding returns what quantizes the weights of a linear layer as package convert does; nil if they stay as they are.
func (v *variant) rounding(linear string) func(w tensor.Dense, with quant.With) (*quant.Tensor, error) {
	group, ok := v.budget.groups[linear]
	if !ok {
		return nil
	}
	q, ok := v.budget.Quantizers[v.format(group)]
	if !ok {
		return nil
	}
	var factor *calibration.Factor
	return func(w tensor.Dense, with quant.With) (_ *quant.Tensor, err error) {
		if !q.Format.Global {
			with.Amax = nil
		}
		if _, err := v.method.Quantizer(q); v.method == calibration.Nearest || err != nil {
			return q.Rowwise(w, with)
		}
		in, ok := v.budget.Statistics.Of(v.budget.linears[linear].Modules[0])
		if !ok {
			return nil, errors.New("the statistics have no input of it: collect them with this model")
		}
		if with.Importance, with.Mean = in.Square, in.Mean; v.method != calibration.Solve {
			return q.Rowwise(w, with)
		}
		if factor == nil {
			if factor, err = in.Factor(with.Threads); err != nil {
				return nil, err
			}
		}
		return calibration.GPTQ(q, w, with, factor)
	}
}

// A fork is a variant of which one layer changes.
type fork struct {
	variant
	first int
}

// First returns the layer that changes.
func (f *fork) First() int { return f.first }

// Layer returns layer i, of the original unless it is the one that changes.
func (f *fork) Layer(ctx context.Context, i int, original windows.Layer) (windows.Layer, error) {
	if i != f.first {
		return original, nil
	}
	return f.variant.Layer(ctx, i, original)
}
