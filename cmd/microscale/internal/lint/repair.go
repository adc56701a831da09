package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// A Change is one place that a repair changes.
type Change struct {
	Rule string `json:"rule"` // by id
	Name string `json:"name"` // of a tensor, or of a file
	Text string `json:"text"`
}

// A Repair is what can be repaired in a checkpoint.
type Repair struct {
	Changes []Change
	Left    []Finding // errors and warnings that it does not repair; their texts say why, if it was tried
	Patch   convert.Patch
}

// repairer collects a repair.
type repairer struct {
	*checker
	original *checkpoint.Model // nil: none
	repair   *Repair
	broken   map[string]bool  // names of rules
	reasons  map[string]error // why findings of a tensor are not repaired
	added    []string         // modules of the original

	renamed map[string]*checkpoint.Weight // modules whose tensors get other names, and what they then are
}

// repairs are what is done for rules, in this order. A row returns which findings of its rules it repairs, or an error that says why
// it repairs none. A finding of the rules of several rows is repaired if all of them do so.
var repairs = []struct {
	rules  []string
	repair func(r *repairer) (repaired func(f *Finding) bool, err error)
}{
	{[]string{foreignNames, "set-format"}, (*repairer).rename},
	{[]string{"set-global", "expert-gate-up"}, (*repairer).unifyGlobals},
	{[]string{"input-scale-missing", "input-scale-bad", "input-set"}, (*repairer).unifyInputs},
	{[]string{"mtp-missing"}, (*repairer).copyFurther},
	{[]string{"index"}, (*repairer).writeIndex},
	{[]string{"block-scale-shape"}, (*repairer).reshape},
	{slices.Concat(unlisted, listed, describing), (*repairer).describe},
}

// The rules for which the descriptions change: those that add entries to the list of unquantized modules, those that remove some, and
// others.
var (
	unlisted = []string{"unquantized-unlisted", "ignore-expert-names", "ignore-fused-partial", "ignore-wrapper", "mtp-partial", "tied-head",
		"mtp-missing"}
	listed     = []string{"ignored-quantized", "ignore-parent", "ignore-substring", "ignore-class"}
	describing = []string{contradiction, "algo-case", "sidecar-missing", "block-scale-shape"}
)

const contradiction = "config-file-contradiction"

// PlanRepair finds what the rules of o find and can be repaired. original is the checkpoint that m was quantized from; nil if there
// is none; of another model it is an error. Codes never change. What cannot be repaired is left, and is no error.
func PlanRepair(ctx context.Context, m, original *checkpoint.Model, o Options) (*Repair, error) {
	report, err := Run(ctx, m, o)
	if err != nil {
		return nil, err
	}
	return report.planRepair(ctx, m, original)
}

// MarkRepairable sets Finding.Repairable of a report about m: what PlanRepair would repair without an original. It reads the block scales
// of fused sets whose global scales differ.
func (report *Report) MarkRepairable(ctx context.Context, m *checkpoint.Model) error {
	_, err := report.planRepair(ctx, m, nil)
	return err
}

// planRepair plans the repair of the findings of a report about m, and says of each whether it is repaired.
func (report *Report) planRepair(ctx context.Context, m, original *checkpoint.Model) (*Repair, error) {
	if original != nil {
		if err := sameModel(m, original); err != nil {
			return nil, err
		}
	}
	c := &checker{Model: m, ctx: ctx, config: readConfig(m)}
	r := &repairer{checker: c, original: original, repair: &Repair{}, broken: map[string]bool{}, reasons: map[string]error{},
		renamed: map[string]*checkpoint.Weight{}}
	r.repair.Patch = convert.Patch{Shapes: map[string][]int64{}, Names: map[string]string{}, Bytes: map[string]*[256]byte{},
		Beside: map[string][]checkpoint.Stored{}}
	for _, f := range report.Findings {
		r.broken[f.Rule.Name] = true
	}
	tried, left, reasons := map[string]bool{}, make([]bool, len(report.Findings)), make([]string, len(report.Findings))
	for _, row := range repairs {
		if !r.breaks(row.rules) || m.Architecture != "" { // of GGUF files nothing is repaired
			continue
		}
		repaired, failed := row.repair(r)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, name := range row.rules {
			tried[name] = true
		}
		for i := range report.Findings {
			f := &report.Findings[i]
			if !slices.Contains(row.rules, f.Rule.Name) || failed == nil && repaired(f) {
				continue
			}
			if reason := cmp.Or(failed, r.reasons[f.Tensor]); reason != nil && !left[i] {
				reasons[i] = "; it is not repaired: " + reason.Error()
			}
			left[i] = true
		}
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.Repairable = tried[f.Rule.Name] && !left[i]; !f.Repairable && f.Rule.Severity > Note {
			unrepaired := *f
			unrepaired.Text += reasons[i]
			r.repair.Left = append(r.repair.Left, unrepaired)
		}
	}
	return r.repair, nil
}

// sameModel returns an error if the weights of original are not those that m was quantized from: if one has another shape, or if the
// largest unquantized matrix of both, an embedding or head, begins with other bytes. Rotated models are other models.
func sameModel(m, original *checkpoint.Model) error {
	var embedding, same hf.Tensor
	for _, w := range m.Weights {
		from, ok := original.Lookup(w.Name)
		if !ok {
			continue
		}
		if !slices.Equal(w.Shape, from.Shape) {
			return fmt.Errorf("%s is of another model: %s has shape %v, and %v in %s", original.Source.Path, w.Name, from.Shape, w.Shape,
				m.Source.Path)
		}
		if t, ok := w.Part(checkpoint.Codes); ok && !w.Quantized() && len(w.Shape) == 2 && t.Bytes() > embedding.Bytes() {
			if f, ok := from.Part(checkpoint.Codes); ok && f.Dtype == t.Dtype {
				embedding, same = t, f
			}
		}
	}
	if embedding.Name == "" {
		return nil
	}
	const bytes = 4096
	var begin [2][]byte
	for i, t := range [2]hf.Tensor{embedding, same} {
		begin[i] = make([]byte, min(bytes, t.Bytes()))
		if err := t.Shard.File.ReadTensorAt(begin[i], t.TensorInfo, 0); err != nil {
			return err
		}
	}
	if !slices.Equal(begin[0], begin[1]) {
		return fmt.Errorf("%s is of another model: %s, which is not quantized, has other values in %s", original.Source.Path, embedding.Name,
			m.Source.Path)
	}
	return nil
}

// breaks reports whether there are findings of one of rules.
func (r *repairer) breaks(rules []string) bool {
	return slices.ContainsFunc(rules, func(name string) bool { return r.broken[name] })
}

// every is the answer of a row that repairs all findings of its rules.
func every(*Finding) bool { return true }

// change lists a change.
func (r *repairer) change(rule, name, text string, args ...any) {
	r.repair.Changes = append(r.repair.Changes, Change{lookup(rule).ID, name, fmt.Sprintf(text, args...)})
}

// replace replaces the bytes of a tensor, or adds one like it by another name beside the codes of a weight.
func (r *repairer) replace(w *checkpoint.Weight, like hf.Tensor, name string, data []byte) {
	codes, _ := w.Part(checkpoint.Codes)
	s := checkpoint.Stored{Part: checkpoint.Input, Value: data}
	s.Name, s.Dtype, s.Shape = name, like.Dtype, like.Shape
	r.repair.Patch.Beside[codes.Name] = append(r.repair.Patch.Beside[codes.Name], s)
}

// read returns the bytes of a small tensor.
func read(t hf.Tensor) ([]byte, error) {
	data := make([]byte, t.Bytes())
	return data, t.Shard.File.ReadTensorAt(data, t.TensorInfo, 0)
}

// unifyInputs gives the weights of a fused set the largest of their scales of activations, and a weight without one the largest of the
// same projections of the other experts of its layer.
func (r *repairer) unifyInputs() (repaired func(f *Finding) bool, err error) {
	groups := [2]map[string][]*checkpoint.Weight{{}, {}} // fused sets, and then the same projections of the experts of a layer
	var order [2][]string
	for _, w := range r.Weights {
		if !w.Quantized() {
			continue
		}
		matrix, _ := r.Family().FusedWith(w.Name)
		for i, key := range []string{matrix, projectionOf(w.Name)} {
			if groups[i][key] == nil {
				order[i] = append(order[i], key)
			}
			groups[i][key] = append(groups[i][key], w)
		}
	}
	needs := map[string]bool{}
	for _, p := range r.Problems {
		needs[p.Tensor] = needs[p.Tensor] || p.Rule == "input-scale-missing"
	}
	done := map[string]bool{} // weights, and tensors with their scales of activations
	for i := range groups {
		for _, key := range order[i] {
			if err := r.unifyInput(groups[i][key], i == 1, needs, done); err != nil {
				return nil, err
			}
		}
	}
	for _, w := range r.Weights {
		name := w.Name
		if t, ok := w.Part(checkpoint.Input); ok {
			name = t.Name
		}
		if !done[name] {
			r.reasons[name] = errors.New("no weight beside it has a scale of activations: convert to a scheme for weights alone, or calibrate again")
		}
	}
	return func(f *Finding) bool { return done[f.Tensor] }, nil
}

// projectionOf returns a name that the same projections of the experts of a layer share; the name itself for other weights.
func projectionOf(name string) string {
	module := moduleOf(name)
	if experts := family.ExpertsOf(name); experts != "" {
		return experts + module[strings.LastIndexByte(module, '.'):]
	}
	return name
}

// unifyInput is unifyInputs for one group. In one of experts only what is missing or bad changes.
func (r *repairer) unifyInput(weights []*checkpoint.Weight, ofExperts bool, needs, done map[string]bool) error {
	var best *checkpoint.Weight
	var largest float32
	for _, w := range weights {
		if _, _, ok := r.input(w); !ok {
			continue
		}
		if scale, ok := w.InputScale(); ok && valid(scale) && (best == nil || scale > largest) {
			best, largest = w, scale
		}
	}
	if r.err != nil || best == nil {
		return r.err
	}
	like, _ := best.Part(checkpoint.Input)
	data, err := read(like)
	if err != nil {
		return err
	}
	suffix := strings.TrimPrefix(like.Name, moduleOf(best.Name))
	for _, w := range weights {
		scale, has := w.InputScale()
		missing, bad := needs[w.Name], has && !valid(scale)
		name := moduleOf(w.Name) + suffix
		if !ofExperts { // the largest scale does not change
			done[name] = true
		}
		if done[w.Name] || !missing && !bad && (ofExperts || scale == largest) {
			continue
		}
		done[w.Name], done[name] = true, true
		r.replace(w, like, name, data)
		switch {
		case missing:
			r.change("input-scale-missing", name, "added: %g, that of %s, the largest beside it", largest, like.Name)
		case bad:
			r.change("input-scale-bad", name, "%g becomes %g, that of %s, the largest beside it", scale, largest, like.Name)
		default:
			r.change("input-set", name, "the decode scale %g becomes %g, that of %s, the largest of the set", scale, largest, like.Name)
		}
	}
	return nil
}

// copyFurther copies the modules that predict further tokens from the original.
func (r *repairer) copyFurther() (repaired func(f *Finding) bool, err error) {
	if r.original == nil {
		return nil, errors.New("give the original checkpoint with --source")
	}
	of := &checker{Model: r.original}
	for _, w := range r.original.Raw() {
		if weight, ok := r.original.Lookup(w.Name); !ok || weight.Quantized() || !of.further(w) {
			continue
		}
		r.repair.Patch.Copied = append(r.repair.Patch.Copied, w)
		if module, ok := strings.CutSuffix(w.Name, weightSuffix); ok && len(w.Shape) == 2 {
			r.added = append(r.added, module)
		}
		r.change("mtp-missing", w.Name, "copied from the original")
	}
	if len(r.repair.Patch.Copied) == 0 {
		return nil, fmt.Errorf("the original %s has no unquantized modules that predict further tokens either", r.original.Source.Path)
	}
	return every, nil
}

// writeIndex lists the index, which every plan writes from the headers.
func (r *repairer) writeIndex() (repaired func(f *Finding) bool, err error) {
	r.change("index", safetensors.IndexName, "written from the headers of the files that it names")
	return every, nil
}

// reshape gives scales of 128×128 blocks the four dimensions of modelopt.
func (r *repairer) reshape() (repaired func(f *Finding) bool, err error) {
	for _, w := range r.Weights {
		if t, ok := twoDimensions(w); ok {
			r.repair.Patch.Shapes[t.Name] = []int64{t.Shape[0], 1, t.Shape[1], 1}
			r.change("block-scale-shape", t.Name, "%v becomes %v", t.Shape, r.repair.Patch.Shapes[t.Name])
		}
	}
	return every, nil
}
