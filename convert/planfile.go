package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/microscale-go/microscale/internal/durable"
	"github.com/microscale-go/microscale/internal/limits"
)

// A PlanFile has the formats of a plan, as a TOML file:
//
//	format = "nvfp4"            # of weights that no rule matches; without it, they stay as they are
//	include = ['lm_head']       # also quantized, as QuantizeOptions.Include
//	file_type = 15              # of a mixture of llama-quantize: general.file_type of the result
//
//	[[rule]]                    # the first that matches counts
//	match = 'self_attn'
//	format = "fp8-row"          # or "fp8-row:FP8_DYNAMIC", or "keep"
type PlanFile struct {
	Format  string     `toml:"format,omitempty"`
	Include []string   `toml:"include,omitempty"`
	Rule    []RuleLine `toml:"rule"`

	// FileType is general.file_type of the result, that of a mixture of llama-quantize whose rules these are. Such rules may quantize
	// nothing. 0: there is none.
	FileType uint32 `toml:"file_type,omitempty"`
}

// A RuleLine is a Rule as text.
type RuleLine struct {
	Match  string `toml:"match"`
	Format string `toml:"format"`
}

// maxPlanFile is the maximum size of a plan file in bytes.
const maxPlanFile = 16 << 20

// ReadPlanFile reads a plan file.
func ReadPlanFile(path string) (*PlanFile, error) {
	data, err := limits.ReadFile(path, maxPlanFile)
	if err != nil {
		return nil, fmt.Errorf("%s: read the plan: %w", path, limits.Cause(err))
	}
	f := &PlanFile{}
	if err = limits.CheckTOML(data); err == nil {
		var meta toml.MetaData
		if meta, err = toml.Decode(string(data), f); err == nil && len(meta.Undecoded()) > 0 {
			err = fmt.Errorf("unknown key %s: it has format, include, file_type and rules of match and format", meta.Undecoded()[0])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a plan: %s", path, limits.Text(err.Error()))
	}
	if f.Format == "" && len(f.Rule) == 0 {
		return nil, fmt.Errorf("%s: no format and no rules: give one of them", path)
	}
	return f, nil
}

// Rules returns the rules of the file. Their quantizers have no behavior but a format.
func (f *PlanFile) Rules() (rules []Rule, err error) {
	for i, line := range f.Rule {
		if line.Format == "" {
			return nil, fmt.Errorf("rule %d: format is missing: give a block format, FORMAT:SCHEME or %q", i+1, Keep)
		}
		r, err := ParseRule(line.Match, line.Format)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		if line.Match == "" {
			return nil, fmt.Errorf("rule %d: match is missing: give a regular expression", i+1)
		}
		r.Default = f.FileType != 0
		rules = append(rules, r)
	}
	return rules, nil
}

// Includes returns the patterns of Include.
func (f *PlanFile) Includes() (all []*regexp.Regexp, err error) {
	for _, text := range f.Include {
		re, err := compile(text)
		if err != nil {
			return nil, fmt.Errorf("include: %w", err)
		}
		all = append(all, re)
	}
	return all, nil
}

// PlanFile returns the plan, which includes weights by patterns, as rules to edit: one for the weights whose names differ in numbers
// alone and that become the same, with a comment. It has all matrices, also those that stay as they are, and leads to the same plan.
func (p *Plan) PlanFile(include []*regexp.Regexp) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s: a rule for each kind of weight, of which the first that matches counts.\n", limits.Text(p.source.Source.Path))
	fmt.Fprintf(&out, "# format is a block format, FORMAT:SCHEME or %q.\n", Keep)
	if p.mixture != 0 {
		fmt.Fprintf(&out, "file_type = %d\n", p.mixture)
	}
	if len(include) > 0 {
		var texts []string
		for _, re := range include {
			texts = append(texts, literal(re.String()))
		}
		fmt.Fprintf(&out, "include = [%s]\n", strings.Join(texts, ", "))
	}
	for _, k := range p.kinds() {
		fmt.Fprintf(&out, "\n[[rule]] # %s\n", k.comment())
		fmt.Fprintf(&out, "match = %s\nformat = %q\n", literal(k.pattern()), k.becomes)
	}
	return out.Bytes()
}

// WritePlanFile writes PlanFile to a new file. It never replaces one: the error is fs.ErrExist then. A plan that decodes
// quantized weights is an error, because a rule leaves their codes.
func (p *Plan) WritePlanFile(path string, include []*regexp.Regexp) error {
	for _, d := range p.decisions {
		if d.action == Decode && d.Quantized() {
			return fmt.Errorf("%s is decoded, which no rule says: dequantize the source first, or use rules in place of --exclude", d.Name)
		}
	}
	return durable.WriteWhole(path, p.PlanFile(include), durable.RenameNew)
}

// literal returns a string of TOML, without escapes where that is possible.
func literal(s string) string {
	if strings.ContainsAny(s, "'\n") {
		return fmt.Sprintf("%q", s)
	}
	return "'" + s + "'"
}

// A kind is the matrices whose names differ in numbers alone and that become the same.
type kind struct {
	shape, becomes string
	reason         Reason
	layers         map[string]bool // the first numbers of their names
	names          []string
	all            bool // no other kind has the shape
	shares         bool // another kind of the shape has a layer of this one, so that only names tell them apart
}

// kinds returns the kinds of a plan, in the order of their first weights.
func (p *Plan) kinds() (kinds []*kind) {
	found, shapes, layers := map[string]*kind{}, map[string]int{}, map[string]*kind{}
	for _, d := range p.decisions {
		if len(d.Shape) < 2 || !d.coded() && d.reason.cause == noCause {
			continue
		}
		becomes := Keep
		if d.action == Quantize {
			becomes = Rule{Quantizer: *d.quantizer}.to()
			if name, _ := p.convention.Scheme(d.quantizer.Format); name != "" {
				becomes += ":" + name
			}
		}
		shape := numbers.ReplaceAllString(d.Name, "#")
		key := shape + "\x00" + becomes + "\x00" + d.reason.Detail
		k := found[key]
		if k == nil {
			k = &kind{shape: shape, becomes: becomes, reason: d.reason, layers: map[string]bool{}}
			found[key], kinds = k, append(kinds, k)
			shapes[shape]++
		}
		layer := numbers.FindString(d.Name)
		k.layers[layer] = true
		k.names = append(k.names, d.Name)
		if first := layers[shape+"\x00"+layer]; first == nil {
			layers[shape+"\x00"+layer] = k
		} else if first != k {
			first.shares, k.shares = true, true
		}
	}
	for _, k := range kinds {
		k.all = shapes[k.shape] == 1
	}
	return kinds
}

// numbers matches the numbers in the names of modules.
var numbers = regexp.MustCompile(`\b\d+\b`)

// pattern returns the regular expression of the names: of all numbers, of those of the layers, or of each name.
func (k *kind) pattern() string {
	if k.shares {
		quoted := make([]string, len(k.names))
		for i, name := range k.names {
			quoted[i] = regexp.QuoteMeta(name)
		}
		return "^(" + strings.Join(quoted, "|") + ")$"
	}
	first := `\d+`
	if !k.all && strings.Contains(k.shape, "#") {
		first = "(" + strings.Join(slices.SortedFunc(maps.Keys(k.layers), func(a, b string) int {
			return cmp.Or(len(a)-len(b), strings.Compare(a, b))
		}), "|") + ")"
	}
	text := strings.Replace(regexp.QuoteMeta(k.shape), "#", first, 1)
	return "^" + strings.ReplaceAll(text, "#", `\d+`) + "$"
}

// comment says how many weights there are, and why they stay as they are.
func (k *kind) comment() string {
	text := fmt.Sprintf("%d weights", len(k.names))
	if len(k.names) == 1 {
		text = "1 weight"
	}
	if k.reason.cause != noCause {
		text += ": " + limits.Text(k.reason.Detail)
	}
	return text
}
