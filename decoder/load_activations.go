package decoder

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
)

// activation returns how to quantize the input of a quantized weight, or nil.
func (r *reader) activation(w *checkpoint.Weight) (*activation, error) {
	if !r.options.Activations {
		return nil, nil
	}
	dynamic := &activation{format: activationFormat(w.Format)}
	if f := r.model.InputFormat(w.Format); f.Element != nil { // such as FP8 of 4-bit weights
		dynamic.format = activationFormat(f)
	}
	scheme := r.model.ActivationsIn(w.Format)
	if scheme == checkpoint.Dynamic {
		return dynamic, nil
	}
	scale, stored := w.InputScale()
	static, ok := staticFormat(w.Format)
	if !stored || !ok {
		if scheme == checkpoint.Static {
			return nil, fmt.Errorf("tensor %s: the scheme %s requires a stored activation scale of one value, and there is none: quantize the "+
				"source with a calibration", w.Name, r.model.Scheme)
		}
		return dynamic, nil
	}
	if err := usableScale(w.Name+": activation scale", scale); err != nil {
		return nil, err
	}
	return &activation{format: static, scale: scale}, nil
}

// usableScale returns an error unless a decode scale and its inverse are positive and finite.
func usableScale(what string, scale float32) error {
	if !(scale > 0 && 1/scale > 0) || math.IsInf(float64(scale), 0) || math.IsInf(float64(1/scale), 0) {
		return fmt.Errorf("tensor %s is %g, want a positive finite number", what, scale)
	}
	return nil
}

// readCache sets the scales of an FP8 KV cache if the checkpoint stores them and activations are
// quantized.
func (r *reader) readCache(m *Model) error {
	attentions := map[string]*nn.Attention{}
	for _, l := range m.layers {
		attentions[l.attention.Name] = l.attention
	}
	for _, w := range r.model.Weights {
		owner, ok := checkpoint.CacheOwner(w.Name)
		if !ok {
			continue
		}
		module, isKey := strings.CutSuffix(owner, ".k_proj.weight")
		module = strings.TrimSuffix(module, ".v_proj.weight")
		a := attentions[module]
		if a == nil {
			return r.unexpected(w.Name)
		}
		if !r.options.Activations {
			continue
		}
		if rows, cols := w.Matrix(); rows*cols != 1 || !w.Dense() {
			return fmt.Errorf("tensor %s: got shape %v and dtype %s, want one number: the scale of a KV cache", w.Name, w.Shape, w.Dtype)
		}
		d, err := w.Read(0, 1)
		if err != nil {
			return err
		}
		scale := d.Row(0)[0]
		if err := usableScale(w.Name, scale); err != nil {
			return err
		}
		if a.CacheScales == nil {
			a.CacheScales = &nn.CacheScales{}
		}
		if isKey {
			a.CacheScales.Key = scale
		} else {
			a.CacheScales.Value = scale
		}
	}
	for _, l := range m.layers {
		c := l.attention.CacheScales
		if c == nil {
			continue
		}
		if c.Key == 0 || c.Value == 0 {
			return fmt.Errorf("%s has only one of k_scale and v_scale, want both for an FP8 KV cache", l.attention.Name)
		}
		if err := r.checkCacheScheme(); err != nil {
			return err
		}
	}
	return nil
}

// checkCacheScheme returns an error if the configuration has a KV cache of another format than FP8.
func (r *reader) checkCacheScheme() error {
	raw, ok := r.model.Source.QuantizationConfig()
	if !ok {
		return nil
	}
	var config struct {
		Scheme json.RawMessage `json:"kv_cache_scheme"`
	}
	if err := json.Unmarshal(raw, &config); err != nil || len(config.Scheme) == 0 || string(config.Scheme) == "null" {
		return err
	}
	var scheme struct {
		Bits int    `json:"num_bits"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(config.Scheme, &scheme); err != nil || scheme.Bits != 8 || scheme.Type != "float" {
		return family.Unsupported(fmt.Errorf("quantization_config: kv_cache_scheme %s is not supported: want FP8",
			strings.Join(strings.Fields(string(config.Scheme)), "")))
	}
	return nil
}

// ActivationScales returns how the activations of the model are quantized, apart from the recipe: the
// number of weights whose input has a stored scale, the number of those whose input has scales per
// token, and the number of layers with an FP8 KV cache.
func (m *Model) ActivationScales() (stored, perToken, caches int) {
	count := func(p *projection) {
		if p.frozen == nil {
			return
		}
		for _, part := range p.frozen.parts {
			switch {
			case part.input == nil, !part.input.format.Scaled():
			case part.input.scale != 0:
				stored++
			default:
				perToken++
			}
		}
	}
	for _, p := range m.projections() {
		count(p)
	}
	for _, l := range m.layers {
		if l.attention.CacheScales != nil {
			caches++
		}
	}
	return stored, perToken, caches
}
