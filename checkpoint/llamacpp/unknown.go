package llamacpp

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/gguf"
)

// harmless are metadata keys of architectures that do not change logits.
var harmless = []string{"tensor_data_layout", "rope.scaling.finetuned", "pooling_type"}

// unknown returns the metadata of the architecture that the configuration does not cover, in the order of
// the file, except zeros, which stand for none. They may change what the model computes.
func (a architecture) unknown(f *gguf.File) (pairs []gguf.Pair) {
	known := a.metadata()
	for _, p := range f.Metadata {
		key, ok := strings.CutPrefix(p.Key, a.Name+".")
		if ok && !slices.Contains(known, key) && !reflect.ValueOf(p.Value).IsZero() && !a.redundant(f, key, p.Value) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// metadata returns the metadata keys that the configuration covers.
func (a architecture) metadata() []string {
	keys := slices.Concat(harmless, []string{"rope.freq_base", "rope.scale_linear", "rope.scaling.type"})
	for _, p := range a.rows() {
		keys = append(keys, p.metadata)
	}
	for _, k := range a.Keys {
		keys = append(keys, k.Metadata)
	}
	for _, k := range scalingKeys {
		keys = append(keys, "rope.scaling."+k.metadata)
	}
	if a.family.WindowPeriod() > 0 {
		keys = append(keys, windowList)
	}
	if a.LongRope {
		keys = append(keys, "attention.sliding_window") // of Phi-3, whose windows llama.cpp ignores
	}
	if a.family.Latent {
		keys = append(keys, logMultiplier, normalizes, gating, "attention.key_length_mla", "attention.value_length_mla")
	}
	return keys
}

// redundant reports whether a value is what the configuration has without it.
func (a architecture) redundant(f *gguf.File, key string, value any) bool {
	switch key {
	case "rope.dimension_count": // of a head; other numbers are for architectures that rotate a part
		return a.Partial || a.family.Latent || f.Count(a.Name+"."+key) == a.headDim(f)
	case "rope.freq_base_swa": // of layers with windows
		global, _ := f.Value(a.Name + ".rope.freq_base").(float32)
		return value == cmp.Or(float32(a.class.RopeLocalBase), global)
	}
	return false
}
