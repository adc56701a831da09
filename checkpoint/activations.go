package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// StoredInput returns the tensor with the scale of the activations that a weight of format f
// multiplies. The scheme of f must be Static. The number in the file is rounded once: the inverse of the
// scale amax/2688 of NVFP4 is that of float32(2688/amax), as compressed-tensors computes it.
func (c *Convention) StoredInput(f quant.Format, weight string, scale float64) Stored {
	s := c.scheme(f)
	spec := safetensors.Spec{Name: partName(weight, s.input), Dtype: safetensors.F32, Shape: s.scalar}
	return Stored{Part: Input, Spec: spec, Value: GlobalBytes(s.inputScale.rounded(scale))}
}

// cacheSuffixes are the suffixes of scales of the KV cache, after the name of the module: the
// attention in compressed-tensors, its projections in ModelOpt.
var cacheSuffixes = []struct{ scale, projection string }{{"k_scale", "k_proj"}, {"v_scale", "v_proj"}}

// StoredCache returns the tensor with the scale of the output of a key or value projection in an
// FP8 KV cache. ok is false if the convention stores none.
func (c *Convention) StoredCache(weight string, scale float32) (s Stored, ok bool) {
	module := strings.TrimSuffix(weight, weightSuffix)
	for _, suffix := range cacheSuffixes {
		attention, ok := strings.CutSuffix(module, "."+suffix.projection)
		if !ok || c.cache == nil {
			continue
		}
		name := attention + "." + suffix.scale
		if *c.cache == perProjection {
			name = module + "." + suffix.scale
		}
		return Stored{Cache, safetensors.Spec{Name: name, Dtype: safetensors.F32, Shape: c.cacheShape()}, GlobalBytes(scale)}, true
	}
	return Stored{}, false
}

// FP8Cache is what Model.Cache returns for E4M3 numbers with one scale for the keys, and one for the values, of a layer.
const FP8Cache = "FP8"

// Cache returns the format of the KV cache that the configuration declares: FP8Cache, otherwise what it says, and "" if it declares none.
func (m *Model) Cache() string { return m.cache }

// readCache returns the format of the KV cache by quantization_config, or by the sidecar of ModelOpt.
func (m *Model) readCache() string {
	type members struct {
		Scheme json.RawMessage `json:"kv_cache_scheme"`
		Algo   json.RawMessage `json:"kv_cache_quant_algo"`
	}
	var config struct{ members }
	var sidecar struct {
		Quantization members `json:"quantization"`
	}
	raw, _ := m.Source.QuantizationConfig()
	_ = json.Unmarshal(raw, &config) // a configuration that is not an object declares none
	raw, _ = m.Source.Companion(modelOpt.sidecar)
	_ = json.Unmarshal(raw, &sidecar)
	for _, declared := range []json.RawMessage{config.Scheme, config.Algo, sidecar.Quantization.Scheme, sidecar.Quantization.Algo} {
		if len(declared) > 0 && string(declared) != "null" {
			return cacheOf(declared)
		}
	}
	return ""
}

// cacheOf returns the format of one member: a scheme of compressed-tensors, whose defaults are those of parseArgs, or a name of ModelOpt.
func cacheOf(declared json.RawMessage) string {
	var name string
	if json.Unmarshal(declared, &name) == nil {
		if strings.EqualFold(name, FP8Cache) {
			return FP8Cache
		}
		return fmt.Sprintf("%.40q", name)
	}
	a, err := parseArgs(declared)
	switch {
	case err != nil || a == nil:
		return fmt.Sprintf("%.40s", declared)
	case a.Type == "float" && a.NumBits == 8 && a.Strategy == "tensor":
		return FP8Cache
	}
	return a.String()
}

// A cacheNaming is the module that the name of a scale of the KV cache begins with.
type cacheNaming uint8

const (
	perAttention  cacheNaming = iota // self_attn.k_scale
	perProjection                    // self_attn.k_proj.k_scale
)

func (c *Convention) cacheShape() []int64 {
	if *c.cache == perProjection {
		return nil
	}
	return []int64{1}
}

// CacheOwner returns the weight of the projection that a scale of the KV cache belongs to, in any
// convention, also by its name in Quark and early versions of compressed-tensors, k_proj.output_scale. ok is false for other names.
func CacheOwner(name string) (weight string, ok bool) {
	output, isOutput := strings.CutSuffix(name, ".output_scale")
	for _, suffix := range cacheSuffixes {
		if isOutput && strings.HasSuffix(output, "."+suffix.projection) {
			return output + weightSuffix, true
		}
		if module, ok := strings.CutSuffix(name, "."+suffix.scale); ok {
			module = strings.TrimSuffix(module, "."+suffix.projection)
			return module + "." + suffix.projection + weightSuffix, true
		}
	}
	return "", false
}
