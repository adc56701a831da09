package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/microscale-go/microscale/format"
)

// quarkRead has the quantization of the operands of a module that is read. An operand is one
// spec, or a list of two: that of the elements and that of their scales.
type quarkRead struct {
	Input  json.RawMessage `json:"input_tensors"`
	Weight json.RawMessage `json:"weight"`
}

func recognizeQuark(raw json.RawMessage) (description, error) {
	var config struct {
		Exclude []string `json:"exclude"`
		Export  *struct {
			Pack string `json:"pack_method"`
		} `json:"export"`
		Global quarkRead            `json:"global_quant_config"`
		Layers map[string]quarkRead `json:"layer_quant_config"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	d := description{ignore: config.Exclude}
	if err := d.addQuark(config.Global); err != nil {
		return description{}, fmt.Errorf("global_quant_config.%w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(config.Layers)) {
		if err := d.addQuark(config.Layers[name]); err != nil {
			return description{}, fmt.Errorf("layer_quant_config: %s: %w", name, err)
		}
	}
	if len(d.groups)+len(d.coded) == 0 {
		return description{}, errors.New("it quantizes no weights")
	}
	if config.Export == nil {
		d.fault("the member export is missing, without which vLLM rejects it")
		return d, d.packQuark("")
	}
	return d, d.packQuark(config.Export.Pack)
}

// addQuark adds the block format of a module.
func (d *description) addQuark(module quarkRead) error {
	weight, err := quarkSpecs(module.Weight)
	if err != nil {
		return fmt.Errorf("weight: %w", readable(err))
	}
	input, err := quarkSpecs(module.Input)
	if err != nil {
		return fmt.Errorf("input_tensors: %w", readable(err))
	}
	if len(weight) == 0 {
		return nil
	}
	s := quarkScheme(weight)
	if w := weight[len(weight)-1]; s == nil {
		if c, ok := quarkCoded(weight); ok {
			if !slices.ContainsFunc(d.coded, func(other coded) bool { return other.name == c.name }) {
				d.coded = append(d.coded, c)
			}
			return nil
		}
		return fmt.Errorf("weight: it stores weights as %s by scheme %q in groups of %d with %q scales, which is not supported",
			w.Dtype, w.QScheme, w.GroupSize, w.ScaleFormat)
	}
	static := len(input) > 0 && !input[len(input)-1].IsDynamic
	if static && s.format.Scale == format.E8M0 {
		d.fault("its activations have stored scales, and vLLM reads microscaling formats with dynamic ones only")
		static = false
	}
	d.add(s.format, static, s.name)
	if d.scheme == "" {
		d.scheme = s.name
	}
	return nil
}

// quarkSpecs parses an operand: nothing, one spec, or a list.
func quarkSpecs(raw json.RawMessage) (specs []quarkSpec, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '[' {
		err = json.Unmarshal(raw, &specs)
		return specs, err
	}
	specs = make([]quarkSpec, 1)
	return specs, json.Unmarshal(raw, &specs[0])
}

// quarkScheme returns the scheme of weights with the given specs, or nil.
func quarkScheme(specs []quarkSpec) *scheme {
	w := specs[0]
	for _, s := range slices.Concat(quarkSchemes, quarkAlso) {
		fits := w.Dtype == s.name
		switch {
		case s.format.Global:
			fits = len(specs) == 2 && w.Dtype == "fp4" && w.GroupSize == s.format.Block.Cols
		case len(specs) > 1:
			fits = false
		case s.format.PerTensor():
			fits = fits && w.QScheme == "per_tensor"
		case s.format.Block.Cols == 0:
			fits = fits && w.QScheme == "per_channel"
		default:
			fits = fits && w.GroupSize == s.format.Block.Cols && w.ScaleFormat == format.E8M0.Name
		}
		if fits {
			return &s
		}
	}
	return nil
}
