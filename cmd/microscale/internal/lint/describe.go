package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/quant"
)

// listKeys are the members with the list of unquantized modules, of which a configuration has one.
var listKeys = []string{"ignore", "exclude_modules", "exclude", "modules_to_not_convert", "ignored_layers"}

// configKey is the member of config.json with the description of the quantization.
const configKey = "quantization_config"

// A description is what both files of a checkpoint are to say.
type description struct {
	list     []string // of unquantized modules
	listRule string   // for which the list is written; "": none
	algo     string   // as the clients spell it; "": it stays
	algoRule string
}

// describe writes the list of unquantized modules from the tensors, and the algorithm as its clients spell it, to both files, each
// if a rule about it is broken.
func (r *repairer) describe() (repaired func(f *Finding) bool, err error) {
	if r.Convention == nil {
		return nil, errors.New("quantization_config is not understood")
	}
	var d description
	d.list = r.unquantized()
	if r.broken["mtp-missing"] && len(r.added) == 0 {
		delete(r.broken, "mtp-missing") // it has no effect on the list
	}
	d.listRule = r.firstBroken(slices.Concat(unlisted, listed, []string{contradiction}))
	if d.algoRule = r.firstBroken([]string{"algo-case", contradiction, "block-scale-shape"}); d.algoRule != "" {
		d.algo = r.spelling()
	}
	raw, inConfig := r.Source.QuantizationConfig()
	if inConfig {
		if members, err := membersOf(r.Source.Config); err != nil || members[configKey] == nil {
			return nil, fmt.Errorf("%s is inside another member of config.json: move it to the top", configKey)
		}
		edited, err := r.described(raw, hf.ConfigName, &d)
		if err != nil {
			return nil, err
		}
		if r.repair.Patch.Config, err = configjson.WithMember(r.Source.Config, configKey, json.RawMessage(edited)); err != nil {
			return nil, err
		}
	}
	inSidecar, err := r.describeSidecar(&d)
	ignored := r.Convention.Ignored(d.list)
	return func(f *Finding) bool {
		switch f.Rule.Name {
		case "sidecar-missing", contradiction:
			return inSidecar
		case "block-scale-shape":
			return true // reshape is for it
		case "unquantized-unlisted":
			w, ok := r.Lookup(f.Tensor)
			return ok && slices.ContainsFunc(append(w.ExpertModules(), moduleOf(f.Tensor)), ignored) && (inConfig || inSidecar)
		}
		return inConfig || inSidecar
	}, err
}

// unquantized returns the list of unquantized modules, from the tensors.
func (r *repairer) unquantized() []string {
	var unquantized, quantized []string
	for _, w := range r.Weights {
		module, ok := strings.CutSuffix(w.Name, weightSuffix)
		switch {
		case r.renamed[module] != nil: // which is no weight yet
		case w.Quantized():
			quantized = append(quantized, module)
		case ok && len(w.Shape) == 2:
			unquantized = append(unquantized, module)
		default:
			unquantized = append(unquantized, w.ExpertModules()...)
		}
	}
	quantized = append(quantized, slices.Sorted(maps.Keys(r.renamed))...)
	return r.Convention.IgnoreList(slices.Concat(unquantized, r.UnstoredHeads(), r.added), quantized)
}

// firstBroken returns the first of rules that has findings; "" if none has.
func (r *repairer) firstBroken(rules []string) string {
	if i := slices.IndexFunc(rules, func(name string) bool { return r.broken[name] }); i >= 0 {
		return rules[i]
	}
	return ""
}

// spelling returns the algorithm of modelopt as TensorRT-LLM knows it; "" for other conventions and mixtures.
func (r *repairer) spelling() string {
	if r.config.main == nil && r.config.sidecar == nil || strings.EqualFold(r.algo(), modelOpt.MixedScheme()) {
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

// described returns the description of a file with the list and the algorithm of d, and lists what changes.
func (r *repairer) described(raw []byte, file string, d *description) ([]byte, error) {
	members, err := membersOf(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key := listKeys[0]
	if i := slices.IndexFunc(listKeys, func(k string) bool { return members[k] != nil }); i >= 0 {
		key = listKeys[i]
	} else if file == modelOpt.Sidecar() {
		key = "exclude_modules"
	}
	before := listOf(members[key])
	if strings.EqualFold(r.algo(), modelOpt.MixedScheme()) && members[key] == nil { // what quantized_layers does not have is unquantized
		before = d.list
	}
	if d.listRule != "" && !slices.Equal(before, d.list) {
		for _, entry := range d.list {
			if !slices.Contains(before, entry) {
				r.change(cmp.Or(r.firstBroken(unlisted), d.listRule), file, "%s: %q is added", key, entry)
			}
		}
		for _, entry := range before {
			if !slices.Contains(d.list, entry) {
				r.change(cmp.Or(r.firstBroken(listed), d.listRule), file, "%s: %q is removed", key, entry)
			}
		}
		if raw, err = configjson.WithMember(raw, key, d.list); err != nil {
			return nil, err
		}
	}
	if was := textOf(members["quant_algo"]); d.algo != "" && was != d.algo {
		r.change(d.algoRule, file, "quant_algo: %q becomes %q", was, d.algo)
		if raw, err = configjson.WithMember(raw, "quant_algo", d.algo); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// describeSidecar is describe for hf_quant_config.json, which is written if it is missing or unusable. It reports whether the result has
// that file as a rule wants it.
func (r *repairer) describeSidecar(d *description) (done bool, err error) {
	data, has := r.Source.Companion(modelOpt.Sidecar())
	missing := r.broken["sidecar-missing"]
	if !modelOpt.Is(r.Convention) || !has && !missing {
		return false, nil
	}
	if missing {
		formats := r.Formats()
		if len(formats) != 1 || !r.Convention.Holds(formats[0]) {
			r.reasons[""] = fmt.Errorf("%s is missing, and repair writes it only for checkpoints of one format that quantize writes: fetch it again",
				modelOpt.Sidecar())
			return false, nil
		}
		for _, f := range r.Convention.Files(formats[0], checkpoint.Settings{Ignore: d.list, KVCache: r.config.cache}) {
			r.repair.Patch.Files = append(r.repair.Patch.Files, f)
			r.change("sidecar-missing", f.Name, "written")
		}
		return true, nil
	}
	members, err := membersOf(data)
	if err != nil || members["quantization"] == nil {
		return false, errors.Join(err, errors.New(modelOpt.Sidecar()+" has no member quantization: fetch it again"))
	}
	edited, err := r.described(members["quantization"], modelOpt.Sidecar(), d)
	if err != nil {
		return false, err
	}
	main, other := r.config.main, r.config.sidecar
	if r.broken[contradiction] && main != nil && main.Layers != nil && !maps.Equal(main.Layers, other.Layers) {
		if edited, err = configjson.WithMember(edited, "quantized_layers", main.Layers); err != nil {
			return false, err
		}
		r.change(contradiction, modelOpt.Sidecar(), "quantized_layers: that of config.json")
	}
	if r.broken[contradiction] && main != nil && cmp.Or(main.GroupSize, other.GroupSize) != other.GroupSize {
		if edited, err = configjson.WithMember(edited, "group_size", main.GroupSize); err != nil {
			return false, err
		}
		r.change(contradiction, modelOpt.Sidecar(), "group_size: %d, that of config.json", main.GroupSize)
	}
	if data, err = configjson.WithMember(data, "quantization", json.RawMessage(edited)); err != nil {
		return false, err
	}
	r.repair.Patch.Files = append(r.repair.Patch.Files, checkpoint.File{Name: modelOpt.Sidecar(), Data: data})
	return true, nil
}

// membersOf returns the members of a JSON object.
func membersOf(raw []byte) (members map[string]json.RawMessage, err error) {
	err = json.Unmarshal(raw, &members)
	return members, err
}

// listOf returns a list of texts; nil if it is none.
func listOf(raw json.RawMessage) (list []string) {
	_ = json.Unmarshal(raw, &list) // of another type it is no list
	return list
}

// textOf returns a text; "" if it is none.
func textOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text) // of another type it is no text
	return text
}
