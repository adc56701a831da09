package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/safetensors"
)

// ctRead has the members of quantization_config that are read.
type ctRead struct {
	ConfigGroups map[string]json.RawMessage `json:"config_groups"`
	Format       *string                    `json:"format"`
	Ignore       []string                   `json:"ignore"`
	KVCache      any                        `json:"kv_cache_scheme"`
}

// ctReadGroup is a group, with raw arguments, because absent keys have defaults.
type ctReadGroup struct {
	Format           *string         `json:"format"`
	InputActivations json.RawMessage `json:"input_activations"`
	Targets          []string        `json:"targets"`
	Weights          json.RawMessage `json:"weights"`
}

// recognizeCompressedTensors finds the preset of a configuration, and the faults that clients
// reject.
func recognizeCompressedTensors(raw json.RawMessage) (description, error) {
	var config ctRead
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	d := description{ignore: config.Ignore, targets: []string{}}
	var found []*ctScheme
	for _, name := range slices.Sorted(maps.Keys(config.ConfigGroups)) {
		raw := config.ConfigGroups[name]
		var group ctReadGroup
		if err := json.Unmarshal(raw, &group); err != nil {
			return description{}, fmt.Errorf("%s: %w", name, readable(err))
		}
		weights, err := parseArgs(group.Weights)
		if err != nil {
			return description{}, fmt.Errorf("%s: weights: %w", name, err)
		}
		if weights == nil {
			continue
		}
		layout := deref(cmp.Or(group.Format, config.Format))
		c, ok := ctCoded(weights, layout)
		hasScheme := slices.ContainsFunc(ctSchemes, func(s ctScheme) bool { return weights.like(s.weights) && s.reads(layout) })
		if ok && (!hasScheme || c.shape != "") { // rows that end within a word have no scheme
			d.coded = append(d.coded, c)
		}
		if ok && !hasScheme {
			if weights.inOrder() {
				d.fault("%s has actorder group, which vLLM 0.32 and compressed-tensors 0.20 no longer support: dequantize it, and quantize the result",
					name)
			}
			d.targets, d.scheme = append(d.targets, group.Targets...), cmp.Or(d.scheme, c.name)
			continue
		}
		i := slices.IndexFunc(ctSchemes, func(s ctScheme) bool { return weights.like(s.weights) && s.reads(layout) })
		if i < 0 {
			i = slices.IndexFunc(ctSchemes, func(s ctScheme) bool { return weights.like(s.weights) })
		}
		if i < 0 {
			return description{}, fmt.Errorf("%s stores weights of %s, which is not a supported block format", name, weights)
		}
		found = append(found, &ctSchemes[i])
		if err := d.group(name, raw, group, weights, &ctSchemes[i]); err != nil {
			return description{}, err
		}
	}
	if len(found) == 0 && len(d.coded) == 0 && config.KVCache != nil {
		return description{}, errCacheOnly
	}
	if len(found) == 0 && len(d.coded) == 0 {
		return description{}, fmt.Errorf("config_groups quantizes no weights")
	}
	if len(found) == 0 {
		return d, nil
	}
	switch mixed := slices.ContainsFunc(found, func(s *ctScheme) bool { return s.layout != found[0].layout }); {
	case config.Format == nil:
	case mixed && *config.Format != ctMixed:
		d.fault("format is %q, and clients read groups of several formats only as %q", *config.Format, ctMixed)
	case !mixed && !found[0].reads(*config.Format):
		d.fault("format is %q, and clients read %s weights only as %q", *config.Format, found[0].format, found[0].layout)
	}
	return d, nil
}

// ctCoded returns the layout of integers that no scheme has: any number of bits in groups or rows, with zero points, of columns in
// another order, or a code in each byte. ok is false if they are not supported. A scheme may have them, too.
func ctCoded(a *ctArgs, layout string) (c coded, ok bool) {
	if a.Type != "int" || a.Dynamic != false || a.NumBits < 2 || a.NumBits > 8 {
		return c, false
	}
	c = coded{name: fmt.Sprintf("int%d", a.NumBits), bits: a.NumBits, depth: a.NumBits, scales: "_scale"}
	switch {
	case a.Strategy == "group" && a.GroupSize != nil && *a.GroupSize > 0:
		c.block = *a.GroupSize
		c.name += fmt.Sprintf("-g%d", c.block)
	case a.Strategy == "channel":
		c.name += "-row"
	default:
		return c, false
	}
	switch layout {
	case "pack-quantized":
		c.codes, c.shape, c.words, c.zero = ctPacked.codes, ctPacked.shape, ctPacked.words, float32(int(1)<<(a.NumBits-1))
		if !a.Symmetric {
			c.zeros, c.zero = ctZeros, 0
			c.name += "-asymmetric"
		}
		if a.inOrder() {
			c.groups = ctOrder
			c.name += "-ordered"
		}
	case "int-quantized":
		c.element, c.bits, c.words = format.S8, format.S8.Bits(), safetensors.I8
		c.name += "-in-bytes"
	default:
		return c, false
	}
	return c, layout == "pack-quantized" || a.Symmetric && !a.inOrder()
}

// inOrder reports whether the groups of columns are those of another order of them.
func (a *ctArgs) inOrder() bool { return a.ActOrder == true || a.ActOrder == "group" }

// ctMixed is the "format" of a configuration whose groups have several.
const ctMixed = "mixed-precision"

// group adds the targets of a group and its faults.
func (d *description) group(name string, raw json.RawMessage, group ctReadGroup, weights *ctArgs, s *ctScheme) error {
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&ctGroup{}); err != nil {
		if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // encoding/json has no type for this error
			d.fault("%s has the key %s, which clients reject: remove it", name, key)
		} else {
			d.fault("%s: %v", name, readable(err))
		}
	}
	if group.Format != nil && !s.reads(*group.Format) {
		d.fault("the format of %s is %q, and clients read %s weights only as %q", name, *group.Format, s.format, s.layout)
	}
	if !weights.Symmetric || weights.Dynamic != false {
		d.fault("%s: weights are symmetric and not dynamic where their codes are stored", name)
	}
	d.targets = append(d.targets, group.Targets...)
	input, err := parseArgs(group.InputActivations)
	if err != nil {
		return fmt.Errorf("%s: input_activations: %w", name, err)
	}
	static := input != nil && (input.Dynamic == false || input.Dynamic == "local")
	switch {
	case input == nil, static:
	case input.Dynamic != true || !input.Symmetric || !s.multiplies(input):
		d.fault("%s quantizes activations as %s, dynamic %v, which no client supports with %s weights", name, input, input.Dynamic, s.format)
	}
	preset := cmp.Or(presetOf(weights, input), s.name)
	d.add(s.format, static, preset)
	switch d.scheme {
	case "", preset:
		d.scheme = preset
	default:
		d.scheme = ctMixed
	}
	return nil
}

// presetOf returns the name of the preset with these weights and activations; "" if there is
// none.
func presetOf(weights, input *ctArgs) string {
	for _, s := range ctSchemes {
		if !weights.like(s.weights) || (input == nil) != (s.activations == nil) {
			continue
		}
		if input == nil || input.like(*s.activations) && (input.Dynamic != true) == (s.scheme.activations == Static) {
			return s.name
		}
	}
	return ""
}

// reads reports whether layout is a valid "format". FP8 weights without quantized activations are
// naive-quantized, with the same tensors (compressors/format.py).
func (s *ctScheme) reads(layout string) bool {
	return layout == s.layout || s.layout == "float-quantized" && layout == "naive-quantized"
}

// multiplies reports whether clients support this dynamic quantization of activations for the
// weights of s: a preset of the same weights has it (quantization/quant_scheme.py).
func (s *ctScheme) multiplies(activations *ctArgs) bool {
	return slices.ContainsFunc(ctSchemes, func(other ctScheme) bool {
		return other.format.Name == s.format.Name && other.scheme.activations == Dynamic && activations.like(*other.activations)
	})
}

// parseArgs parses arguments; it returns nil if they are null or absent. Absent keys have the
// defaults of QuantizationArgs (quantization/quant_args.py); the default strategy follows from
// the group size.
func parseArgs(raw json.RawMessage) (*ctArgs, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	a := &ctArgs{NumBits: 8, Type: "int", Symmetric: true, Dynamic: false}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, readable(err)
	}
	switch {
	case a.Strategy != "":
	case a.GroupSize == nil:
		a.Strategy = "tensor"
	case *a.GroupSize > 0:
		a.Strategy = "group"
	case *a.GroupSize == -1:
		a.Strategy, a.GroupSize = "channel", nil
	}
	return a, nil
}

// like reports whether a matches a preset. A dtype of scales in the preset must match: groups of
// 32 FP8 elements have E8M0 scales only with torch.uint8, and are float-quantized otherwise
// (compressors/mxfp8/base.py). 4-bit formats are older than this key and may omit it. The scales of integers have the dtype
// of the model.
func (a *ctArgs) like(preset ctArgs) bool {
	return a.Type == preset.kind() && a.NumBits == preset.NumBits && a.Strategy == preset.Strategy &&
		equal(a.GroupSize, preset.GroupSize) && slices.Equal(a.BlockStructure, preset.BlockStructure) &&
		(equal(a.ScaleDtype, preset.ScaleDtype) || a.ScaleDtype == nil && a.NumBits == 4 || a.Type == "int") && a.plain()
}

// plain reports whether integers are stored without zero points, and their groups are of adjacent columns.
func (a *ctArgs) plain() bool {
	return a.Type != "int" || a.Symmetric && (a.ActOrder == nil || a.ActOrder == false || a.ActOrder == "weight" || a.ActOrder == "static")
}

func (a *ctArgs) String() string {
	text := fmt.Sprintf("type %s, %d bits, strategy %s", a.Type, a.NumBits, a.Strategy)
	if a.GroupSize != nil {
		text += fmt.Sprintf(", group size %d", *a.GroupSize)
	}
	if a.Type == "int" && !a.plain() {
		text += fmt.Sprintf(", symmetric %t, actorder %v", a.Symmetric, a.ActOrder)
	}
	if a.BlockStructure != nil {
		text += fmt.Sprintf(", blocks %v", a.BlockStructure)
	}
	if a.ScaleDtype != nil {
		return text + ", scale dtype " + *a.ScaleDtype
	}
	return text + ", no scale dtype"
}

// LinearClass is the class of linear modules in PyTorch, which as a target or an entry of an ignore list stands for all of them.
const LinearClass = "Linear"

// selector returns a function that reports whether a module is among the targets.
func (d *description) selector() func(module string) bool {
	if slices.Contains(d.targets, LinearClass) {
		return func(string) bool { return true }
	}
	return exactOrRegexp(d.targets)
}

// checkTargets compares quantized weights with the targets of the configuration.
func (m *Model) checkTargets(d description) {
	if m.Convention == nil {
		return
	}
	for _, text := range d.faults {
		m.misread("", "", "quantization_config: %s", text)
	}
	selected := d.selector()
	for _, w := range m.Weights {
		if !w.Quantized() {
			continue
		}
		module := strings.TrimSuffix(w.Name, weightSuffix)
		if d.targets != nil && !selected(module) {
			m.misread("quantized-untargeted", w.Name, "it is quantized, but no target of quantization_config selects it; a client would read its "+
				"codes as values")
		}
		if d.static(w.Format) && w.scheme.input != "" && w.parts[Input] == nil {
			m.misread("input-scale-missing", w.Name, "quantization_config says that the scale of its activations is stored, but there is no %s",
				module+w.scheme.input)
		}
	}
}
