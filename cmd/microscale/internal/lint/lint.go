// Package lint finds what programs reject or misread in a quantized checkpoint. A rule is a row of a table:
// id, severity, what it finds, why that matters, the remedy and the source. Headers and numbers of whole tensors decide, and the
// scales of blocks if they are asked for. A rule rests on dtypes, shapes, values and declarations; one that rests on
// a name alone says so in its row.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
)

// OpenBroken opens a checkpoint, as open does, and a directory whose index contradicts its files, too: that is a finding.
func OpenBroken(path string, open func(path string) (*hf.Checkpoint, error)) (*hf.Checkpoint, error) {
	source, err := open(path)
	if err == nil {
		return source, nil
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		if broken, openErr := hf.OpenUnchecked(path); openErr == nil {
			return broken, nil
		}
	}
	return nil, err
}

// A Severity is how much a finding matters.
type Severity uint8

// The severities, in increasing order.
const (
	Note    Severity = iota // worth knowing
	Warning                 // less accurate, or wrong in some programs
	Error                   // a program rejects the checkpoint or computes with other values
)

// String returns "note", "warning" or "error", which are the levels of SARIF too.
func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// Needs is what a rule reads.
type Needs uint8

// What rules read.
const (
	Headers Needs = iota // of the files, and the configuration
	Scalars              // also the numbers of whole tensors
	Scales               // also scales: of whole tensors, of rows in files on disk, and of all blocks if they are asked for
)

// String returns what is read.
func (n Needs) String() string { return [...]string{"headers", "scalars", "scales"}[n] }

// A Rule is a row of the table.
type Rule struct {
	ID, Name string
	Severity Severity
	Needs    Needs
	What     string // it finds
	Why      string // that matters
	Remedy   string
	Source   string // a thread, a file of a program, or our own measurement

	// unread: the client reads no such checkpoint, which is no defect of it. Only if the client is asked for, that is a finding.
	unread bool
	// clients are those that a check is about; nil: all, whatever program loads the checkpoint.
	clients []string
	// check looks for findings. nil: problems of packages checkpoint and client that have the name of the rule.
	check func(c *checker)
	// exempts reports whether a client does not need what the rule wants of a tensor; nil: all need it.
	exempts func(c *checker, client, tensor string) bool
	// explains are rules whose findings at the same module, and those about the whole checkpoint that name it, follow from one of
	// this rule; all findings, if it is about no single module.
	explains []string
	// explainsWhole are rules whose findings about the whole checkpoint follow from one of this rule at any module.
	explainsWhole []string
}

// A Finding is a place where a rule is broken.
type Finding struct {
	Rule    *Rule
	Clients []string // that reject or misread it; none: any program
	Tensor  string   // or module; "" if it concerns the whole checkpoint
	File    string   // that has it
	Text    string

	Repairable bool // by repair without an original, once Report.MarkRepairable has said so
}

// String returns the tensor, the text and the clients.
func (f *Finding) String() string {
	text := f.Text
	if f.Tensor != "" {
		text = f.Tensor + ": " + text
	}
	if len(f.Clients) > 0 {
		text += " (" + strings.Join(f.Clients, ", ") + ")"
	}
	return text
}

// A Report is the result of Run.
type Report struct {
	Findings []Finding // the most severe first, then by rule, clients and tensor
	Clients  []string  // whose rules were applied
	Skipped  []string  // clients that read no such checkpoint, and were not asked for
}

// Count returns the number of findings of a severity.
func (r *Report) Count(s Severity) (n int) {
	for _, f := range r.Findings {
		if f.Rule.Severity == s {
			n++
		}
	}
	return n
}

// Options choose the rules.
type Options struct {
	Clients []client.Client // nil: all that read such checkpoints
	Scales  bool            // read the scales of blocks
}

// Run applies the rules to a checkpoint. The only errors are that of ctx and those of reading data.
func Run(ctx context.Context, m *checkpoint.Model, o Options) (*Report, error) {
	c := &checker{Model: m, ctx: ctx, config: readConfig(m), merged: map[place]int{},
		blocks: o.Scales, scales: map[string]scaleCounts{}}
	r := &Report{}
	chosen := o.Clients
	if chosen == nil {
		chosen = client.All()
	}
	var rejects [][]checkpoint.Problem // of c.clients
	for _, one := range chosen {
		problems := one.Rejects(m)
		if o.Clients == nil && slices.ContainsFunc(problems, rejected) {
			r.Skipped = append(r.Skipped, one.Name)
			continue
		}
		c.clients, rejects = append(c.clients, one.Name), append(rejects, problems)
	}
	c.add(m.Problems, "")
	for _, text := range c.config.unreadable {
		c.put(lookup(unreadable), nil, "", text)
	}
	for i, name := range c.clients {
		c.add(rejects[i], name)
	}
	r.Clients = c.clients
	for i := range rules {
		if c.rule = &rules[i]; c.rule.check == nil {
			continue
		}
		if c.about = c.rule.of(c.clients); len(c.about) == 0 && c.rule.clients != nil {
			continue
		}
		if c.rule.check(c); c.err != nil {
			return nil, c.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.Findings = c.unexplained()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(int(b.Rule.Severity)-int(a.Rule.Severity), strings.Compare(a.Rule.ID, b.Rule.ID), slices.Compare(a.Clients, b.Clients),
			strings.Compare(a.Tensor, b.Tensor))
	})
	return r, nil
}

// rejected reports whether a problem is that a client reads no such checkpoint.
func rejected(p checkpoint.Problem) bool { return lookup(p.Rule).unread }

// Problems returns the errors that Run finds for clients beyond the problems that m has, as problems of m.
func Problems(ctx context.Context, m *checkpoint.Model, clients []client.Client) ([]checkpoint.Problem, error) {
	if len(clients) == 0 {
		return nil, nil
	}
	r, err := Run(ctx, m, Options{Clients: clients})
	if err != nil {
		return nil, err
	}
	var problems []checkpoint.Problem
	for _, f := range r.Findings {
		known := slices.ContainsFunc(m.Problems, func(p checkpoint.Problem) bool { return p.Tensor == f.Tensor && p.Text == f.Text })
		if f.Rule.Severity < Error || known {
			continue
		}
		text := f.Text
		if len(f.Clients) > 0 {
			text = strings.Join(f.Clients, ", ") + ": " + text
		}
		problems = append(problems, checkpoint.Problem{Rule: f.Rule.Name, Tensor: f.Tensor, Text: text})
	}
	return problems, nil
}

// All returns the rules in the order of their ids.
func All() []Rule { return slices.Clone(rules) }

// of returns the clients among names that the rule is about.
func (r *Rule) of(names []string) (about []string) {
	for _, name := range names {
		if slices.Contains(r.clients, name) {
			about = append(about, name)
		}
	}
	return about
}

// A checker applies rules to a model.
type checker struct {
	*checkpoint.Model
	ctx     context.Context
	config  config
	clients []string // whose rules are applied
	rule    *Rule    // that is applied
	about   []string // clients that its findings are about
	found   []Finding
	merged  map[place]int          // indexes of found
	blocks  bool                   // the scales of blocks are read
	scales  map[string]scaleCounts // by the tensors that were read
	err     error                  // of reading data
}

// A place is what findings for several clients have in common.
type place struct {
	rule         *Rule
	tensor, text string
}

// report adds a finding of the rule that is applied.
func (c *checker) report(tensor, text string, args ...any) {
	c.put(c.rule, c.about, tensor, fmt.Sprintf(text, args...))
}

// add adds problems that other packages found, for a client; "" for all.
func (c *checker) add(problems []checkpoint.Problem, name string) {
	for _, p := range problems {
		rule := lookup(p.Rule)
		var about []string
		if name != "" {
			about = []string{name}
		}
		c.put(rule, about, p.Tensor, strings.TrimPrefix(p.Text, name+": "))
	}
}

// put adds a finding, or its clients to the same one of others; none, if the rule exempts all clients.
func (c *checker) put(rule *Rule, about []string, tensor, text string) {
	if rule.exempts != nil {
		among := about
		if len(among) == 0 {
			among = c.clients
		}
		need := slices.DeleteFunc(slices.Clone(among), func(name string) bool { return rule.exempts(c, name, tensor) })
		if len(among) > 0 && len(need) == 0 {
			return
		}
		if len(need) < len(among) {
			about = need
		}
	}
	at := place{rule, tensor, text}
	if i, ok := c.merged[at]; ok {
		c.found[i].Clients = append(c.found[i].Clients, about...)
		return
	}
	c.merged[at] = len(c.found)
	f := Finding{Rule: rule, Clients: slices.Clone(about), Tensor: tensor, File: c.fileOf(tensor), Text: limits.Text(text)}
	c.found = append(c.found, f)
}

// fileOf returns the file that has a tensor or the weight of a module, or the configuration.
func (c *checker) fileOf(tensor string) string {
	for _, name := range []string{tensor, tensor + weightSuffix} {
		if w, ok := c.Lookup(name); ok {
			if t, ok := w.Part(checkpoint.Codes); ok {
				return t.Shard.Name
			}
		}
		if t, ok := c.Source.Lookup(name); ok {
			return t.Shard.Name
		}
	}
	if shards := c.Source.Shards(); c.Source.Config == nil && len(shards) > 0 {
		return shards[0].Name
	}
	return hf.ConfigName
}

// unexplained returns the findings without those that follow from one of another rule.
func (c *checker) unexplained() []Finding {
	type effect struct{ rule, module string } // module "": at all
	follows := map[effect]bool{}
	modules := map[string][]string{} // by the rules that findings about them explain
	whole := map[string]bool{}
	for _, f := range c.found {
		explains := f.Rule.explains
		if f.Rule.Name == unsupported && c.Convention == nil { // no tensor is described
			explains = []string{structure}
		}
		for _, name := range explains {
			follows[effect{name, moduleOf(f.Tensor)}] = true
			modules[name] = append(modules[name], moduleOf(f.Tensor))
		}
		for _, name := range f.Rule.explainsWhole {
			whole[name] = true
		}
	}
	return slices.DeleteFunc(c.found, func(f Finding) bool {
		name := f.Rule.Name
		if follows[effect{name, ""}] || f.Tensor != "" && follows[effect{name, f.Tensor}] {
			return true
		}
		if f.Tensor == "" {
			return whole[name] || slices.ContainsFunc(modules[name], func(m string) bool { return strings.Contains(f.Text, m+" ") })
		}
		for i, r := range f.Tensor { // a part of a weight has the name of its module at the beginning
			if (r == '.' || r == '_') && follows[effect{name, f.Tensor[:i]}] {
				return true
			}
		}
		return false
	})
}

const weightSuffix = ".weight"

// moduleOf returns the module of a weight.
func moduleOf(tensor string) string { return strings.TrimSuffix(tensor, weightSuffix) }
