package checkpoint

import (
	"strings"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// StoredInput returns the tensor that holds the scale of the activations that meet
// a weight of format f. The scheme of f is one of Static activations.
func (c *Convention) StoredInput(f quant.Format, weight string, scale float32) Stored {
	s := c.scheme(f)
	spec := safetensors.Spec{Name: partName(weight, s.input), Dtype: safetensors.F32, Shape: s.scalar}
	return Stored{Part: Input, Spec: spec, Value: GlobalBytes(s.inputScale.stored(scale))}
}

// cacheSuffixes are the ends of names of the scales of the KV cache, behind the
// module that they belong to: the attention in compressed-tensors, its projections in
// ModelOpt.
var cacheSuffixes = []struct{ scale, projection string }{{"k_scale", "k_proj"}, {"v_scale", "v_proj"}}

// StoredCache returns the tensor that holds the scale of what a projection, of keys
// or values, writes to an FP8 KV cache; ok is false where the convention stores none.
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

// cacheNaming says where the name of a scale of the KV cache begins.
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

// CacheOwner returns the weight of the projection that a scale of the KV cache
// belongs to, whichever convention it is of; ok is false of another name.
func CacheOwner(name string) (weight string, ok bool) {
	for _, suffix := range cacheSuffixes {
		if module, ok := strings.CutSuffix(name, "."+suffix.scale); ok {
			module = strings.TrimSuffix(module, "."+suffix.projection)
			return module + "." + suffix.projection + weightSuffix, true
		}
	}
	return "", false
}
