package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
)

// A Change is one place that a repair changes.
type Change struct {
	Rule string `json:"rule"` // by id
	Name string `json:"name"` // of a tensor, or of a file
	Text string `json:"text"`
}

// A Repair is what can be mended in a checkpoint.
type Repair struct {
	Changes []Change
	Left    []Finding // errors and warnings that it does not mend
	Patch   convert.Patch
}

// repairer collects a repair.
type repairer struct {
	*checker
	original *checkpoint.Model // nil: none
	repair   *Repair
	broken   map[string]bool // names of rules
	added    []string        // modules of the original
}

// repairs are what is done for rules, in this order. A row mends the findings of its rules, or returns an error that says why it cannot.
var repairs = []struct {
	rules []string
	mend  func(r *repairer) error
}{
	{[]string{"set-global", "expert-gate-up"}, (*repairer).unifyGlobals},
	{[]string{"input-scale-missing", "input-scale-bad", "input-set"}, (*repairer).unifyInputs},
	{[]string{"mtp-missing"}, (*repairer).copyFurther},
	{[]string{"index"}, (*repairer).writeIndex},
	{[]string{"block-scale-shape"}, (*repairer).reshape},
	{[]string{"ignored-quantized", "unquantized-unlisted", "ignore-parent", "ignore-substring", "ignore-expert-names", "ignore-fused-partial",
		"ignore-wrapper", "mtp-partial", "tied-head", "config-file-contradiction", "algo-case", "sidecar-missing", "mtp-missing",
		"block-scale-shape"},
		(*repairer).describe},
}

// PlanRepair finds what the rules of o find and can be mended. original is the checkpoint that m was quantized from; nil if there is
// none. Codes never change.
func PlanRepair(ctx context.Context, m, original *checkpoint.Model, o Options) (*Repair, error) {
	report, err := Run(ctx, m, o)
	if err != nil {
		return nil, err
	}
	c := &checker{Model: m, ctx: ctx, config: readConfig(m)}
	r := &repairer{checker: c, original: original, repair: &Repair{}, broken: map[string]bool{}}
	r.repair.Patch = convert.Patch{Shapes: map[string][]int64{}, Bytes: map[string]*[256]byte{}, Beside: map[string][]checkpoint.Stored{}}
	for _, f := range report.Findings {
		r.broken[f.Rule.Name] = true
	}
	mended := map[string]bool{}
	for _, row := range repairs {
		if !slices.ContainsFunc(row.rules, func(name string) bool { return r.broken[name] }) {
			continue
		}
		if err := row.mend(r); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Source.Path, err)
		}
		for _, name := range row.rules {
			mended[name] = true
		}
	}
	if original == nil {
		mended["mtp-missing"] = false
	}
	for _, f := range report.Findings {
		if f.Rule.Severity > Note && !mended[f.Rule.Name] {
			r.repair.Left = append(r.repair.Left, f)
		}
	}
	return r.repair, nil
}

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
func (r *repairer) unifyInputs() error {
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
	done := map[string]bool{}
	for i := range groups {
		for _, key := range order[i] {
			if err := r.unifyInput(groups[i][key], i == 1, needs, done); err != nil {
				return err
			}
		}
	}
	for _, w := range r.Weights {
		if needs[w.Name] && !done[w.Name] {
			return fmt.Errorf("%s has no scale of activations, and no weight beside it has one: convert to a scheme for weights alone, or "+
				"calibrate again", w.Name)
		}
	}
	return nil
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
		if done[w.Name] || !missing && !bad && (ofExperts || scale == largest) {
			continue
		}
		name := moduleOf(w.Name) + suffix
		done[w.Name] = true
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
func (r *repairer) copyFurther() error {
	if r.original == nil {
		return nil
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
		return fmt.Errorf("the original %s has no unquantized modules that predict further tokens either", r.original.Source.Path)
	}
	return nil
}

// writeIndex lists the index, which every plan writes from the headers.
func (r *repairer) writeIndex() error {
	r.change("index", "model.safetensors.index.json", "written from the headers of the files that it names")
	return nil
}

// reshape gives scales of 128×128 blocks the four dimensions of modelopt.
func (r *repairer) reshape() error {
	for _, w := range r.Weights {
		if t, ok := twoDimensions(w); ok {
			r.repair.Patch.Shapes[t.Name] = []int64{t.Shape[0], 1, t.Shape[1], 1}
			r.change("block-scale-shape", t.Name, "%v becomes %v", t.Shape, r.repair.Patch.Shapes[t.Name])
		}
	}
	return nil
}

// listKeys are the members with the list of unquantized modules, of which a configuration has one.
var listKeys = []string{"ignore", "exclude_modules", "exclude", "modules_to_not_convert", "ignored_layers"}

// configKey is the member of config.json with the description of the quantization.
const configKey = "quantization_config"

// describe writes the list of unquantized modules from the tensors, and the algorithm as its clients spell it, to both files.
func (r *repairer) describe() error {
	if r.Convention == nil {
		return errors.New("quantization_config is not understood, and stays")
	}
	var unquantized, quantized []string
	for _, w := range r.Weights {
		module, ok := strings.CutSuffix(w.Name, weightSuffix)
		switch {
		case w.Quantized():
			quantized = append(quantized, module)
		case ok && len(w.Shape) == 2:
			unquantized = append(unquantized, module)
		default:
			unquantized = append(unquantized, w.ExpertModules()...)
		}
	}
	unquantized = append(append(unquantized, r.UnstoredHeads()...), r.added...)
	list := r.Convention.IgnoreList(unquantized, quantized)
	algo := r.spelling()
	if raw, ok := r.Source.QuantizationConfig(); ok {
		if members, err := membersOf(r.Source.Config); err != nil || members[configKey] == nil {
			return fmt.Errorf("%s is inside another member of config.json: move it to the top", configKey)
		}
		edited, err := r.described(raw, hf.ConfigName, list, algo)
		if err != nil {
			return err
		}
		if r.repair.Patch.Config, err = configjson.WithMember(r.Source.Config, configKey, jsonRaw(edited)); err != nil {
			return err
		}
	}
	return r.describeSidecar(list, algo)
}

// spelling returns the algorithm of modelopt as TensorRT-LLM knows it; "" for other conventions and mixtures.
func (r *repairer) spelling() string {
	if r.config.main == nil && r.config.sidecar == nil || strings.EqualFold(r.algo(), mixedAlgo) {
		return ""
	}
	for _, f := range r.Formats() {
		for _, name := range r.Convention.Schemes(f) {
			if strings.EqualFold(name, r.algo()) || f.Name == quant.FP8Block.Name {
				return name
			}
		}
	}
	return r.algo()
}

// described returns a description with another list and algorithm, and lists what changes.
func (r *repairer) described(raw []byte, file string, list []string, algo string) ([]byte, error) {
	members, err := membersOf(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key := listKeys[0]
	if i := slices.IndexFunc(listKeys, func(k string) bool { return members[k] != nil }); i >= 0 {
		key = listKeys[i]
	} else if file == moSidecar {
		key = "exclude_modules"
	}
	before := listOf(members[key])
	if strings.EqualFold(r.algo(), mixedAlgo) && members[key] == nil { // what quantized_layers does not have is unquantized
		before = list
	}
	if !slices.Equal(before, list) {
		for _, entry := range list {
			if !slices.Contains(before, entry) {
				r.change("unquantized-unlisted", file, "%s: %q is added", key, entry)
			}
		}
		for _, entry := range before {
			if !slices.Contains(list, entry) {
				r.change("ignored-quantized", file, "%s: %q is removed", key, entry)
			}
		}
		if raw, err = configjson.WithMember(raw, key, list); err != nil {
			return nil, err
		}
	}
	if was := textOf(members["quant_algo"]); algo != "" && was != algo {
		r.change("algo-case", file, "quant_algo: %q becomes %q", was, algo)
		if raw, err = configjson.WithMember(raw, "quant_algo", algo); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// describeSidecar is describe for hf_quant_config.json, which is written if it is missing.
func (r *repairer) describeSidecar(list []string, algo string) error {
	data, has := r.Source.Companion(moSidecar)
	if r.Convention.Name != "modelopt" || !has && !r.broken["sidecar-missing"] {
		return nil
	}
	if !has {
		for _, f := range r.Convention.Files(r.Formats()[0], checkpoint.Settings{Ignore: list, KVCache: r.config.cache}) {
			r.repair.Patch.Files = append(r.repair.Patch.Files, f)
			r.change("sidecar-missing", f.Name, "written")
		}
		return nil
	}
	members, err := membersOf(data)
	if err != nil || members["quantization"] == nil {
		return errors.Join(err, errors.New(moSidecar+" has no member quantization: fetch it again"))
	}
	edited, err := r.described(members["quantization"], moSidecar, list, algo)
	if err != nil {
		return err
	}
	main, other := r.config.main, r.config.sidecar
	if main != nil && main.Layers != nil && !maps.Equal(main.Layers, other.Layers) {
		if edited, err = configjson.WithMember(edited, "quantized_layers", main.Layers); err != nil {
			return err
		}
		r.change("config-file-contradiction", moSidecar, "quantized_layers: that of config.json")
	}
	if main != nil && cmp.Or(main.GroupSize, other.GroupSize) != other.GroupSize {
		if edited, err = configjson.WithMember(edited, "group_size", main.GroupSize); err != nil {
			return err
		}
		r.change("config-file-contradiction", moSidecar, "group_size: %d, that of config.json", main.GroupSize)
	}
	if data, err = configjson.WithMember(data, "quantization", jsonRaw(edited)); err != nil {
		return err
	}
	r.repair.Patch.Files = append(r.repair.Patch.Files, checkpoint.File{Name: moSidecar, Data: data})
	return nil
}
