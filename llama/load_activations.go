package llama

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/nn"
)

// activation returns what quantizes the input of a quantized weight, nil for nothing.
func (r *reader) activation(w *checkpoint.Weight) (*activation, error) {
	if !r.options.Activations {
		return nil, nil
	}
	own := &activation{format: activationFormat(w.Format)}
	does := r.model.ActivationsIn(w.Format)
	if does == checkpoint.Dynamic {
		return own, nil
	}
	scale, stored := w.InputScale()
	static, ok := staticFormat(w.Format)
	if !stored || !ok {
		if does == checkpoint.Static {
			return nil, fmt.Errorf("tensor %s: its scheme %s stores the scale of its activations, and there is none of one value: quantize the source with a calibration", w.Name, r.model.Scheme)
		}
		return own, nil
	}
	if err := usableScale(w.Name+": the scale of its activations", scale); err != nil {
		return nil, err
	}
	return &activation{format: static, scale: scale}, nil
}

// usableScale returns an error unless a decode scale and its inverse are positive and
// finite.
func usableScale(what string, scale float32) error {
	if !(scale > 0 && 1/scale > 0) || math.IsInf(float64(scale), 0) || math.IsInf(float64(1/scale), 0) {
		return fmt.Errorf("tensor %s is %g: a scale must be positive and finite", what, scale)
	}
	return nil
}

// readCache gives the attentions of the model the scales of an FP8 KV cache, where the
// checkpoint stores them and activations are quantized.
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
			return fmt.Errorf("tensor %s is not one of a %s of this configuration", w.Name, architecture)
		}
		if !r.options.Activations {
			continue
		}
		if rows, cols := w.Matrix(); rows*cols != 1 || !w.Dense() {
			return fmt.Errorf("tensor %s has the shape %v and the dtype %s: a scale of the KV cache is one number", w.Name, w.Shape, w.Dtype)
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
			return fmt.Errorf("%s has one of k_scale and v_scale without the other: an FP8 KV cache needs both", l.attention.Name)
		}
		if err := r.checkCacheScheme(); err != nil {
			return err
		}
	}
	return nil
}

// checkCacheScheme returns an error if the configuration says that the KV cache has
// another format than FP8.
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
		return fmt.Errorf("quantization_config: kv_cache_scheme is %s: only an FP8 KV cache is computed here", strings.Join(strings.Fields(string(config.Scheme)), ""))
	}
	return nil
}

// ActivationScales counts what quantizes the activations of a model.
type ActivationScales struct {
	Stored int // weights whose input has a stored scale
	Tokens int // weights whose input has scales of each token's own
	Caches int // attentions whose keys and values are those of an FP8 KV cache
}

// ActivationScales returns what quantizes the activations of the model, beside the
// recipe.
func (m *Model) ActivationScales() ActivationScales {
	var n ActivationScales
	count := func(p *projection) {
		if p.frozen == nil {
			return
		}
		for _, part := range p.frozen.parts {
			switch {
			case part.input == nil:
			case part.input.scale != 0:
				n.Stored++
			default:
				n.Tokens++
			}
		}
	}
	for _, l := range m.layers {
		for _, p := range l.projections() {
			count(p)
		}
		if l.attention.CacheScales != nil {
			n.Caches++
		}
	}
	count(&m.head)
	return n
}
