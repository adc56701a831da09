package llamacpp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// An architecture is a family of models in llama.cpp.
type architecture struct {
	family.GGUF
	family *family.Family
	class  family.Settings // what a config.json without keys stands for
}

// architectures has the supported architectures by their class in transformers.
var architectures = func() map[string]architecture {
	all := map[string]architecture{}
	for _, f := range family.All() {
		if f.GGUF != nil {
			all[f.Class] = architecture{*f.GGUF, &f, f.Default()}
		}
	}
	return all
}()

// activation returns hidden_act in config.json.
func (a architecture) activation() string {
	if a.family.GELU() {
		return "gelu_pytorch_tanh"
	}
	return "silu"
}

// architectureOf returns the architecture of a file, and its class: the first in the order of names if
// llama.cpp makes no difference between several. The zero architecture is an unknown one.
func architectureOf(f *gguf.File) (class string, a architecture) {
	a.family = &family.Family{}
	name, _ := f.Value("general.architecture").(string)
	for _, c := range slices.Sorted(maps.Keys(architectures)) {
		row := architectures[c]
		marked := row.Marker != "" && f.Count(name+"."+row.Marker) > 0
		if row.Name == name && (marked || row.Marker == "" && class == "") {
			class, a = c, row
		}
	}
	return class, a
}

func architectureNames() string {
	return strings.Join(slices.Sorted(maps.Keys(architectures)), ", ")
}

// above returns what the values of a tensor of a GGUF file are above those of the checkpoint.
func (a architecture) above(name string) float32 {
	if a.family.PlusOne && strings.HasSuffix(name, "norm.weight") {
		return 1
	}
	return 0
}

// checkGraph returns an error if the model differs from what llama.cpp's graph has as constants.
func (m *Model) checkGraph() error {
	c, a := &m.config, m.architecture
	if act := cmp.Or(c.HiddenAct, c.HiddenActivation); act != "" && act != a.activation() {
		return fmt.Errorf("hidden_act %q: llama.cpp runs %s with %s", act, a.Name, a.activation())
	}
	if p := c.rope.PartialRotary; p != 0 && p != 1 && !a.Partial {
		return fmt.Errorf("partial_rotary_factor %g: llama.cpp runs %s with rotary embeddings of all of a head", p, a.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(a.Constants)) {
		var x float64
		if raw, ok := m.members[key]; ok && (json.Unmarshal(raw, &x) != nil || x != a.Constants[key]) {
			return fmt.Errorf("%s is %s, and llama.cpp runs %s with %g", key, raw, a.Name, a.Constants[key])
		}
	}
	for i, kind := range c.LayerTypes {
		if windowed := a.family.WindowPeriod() > 0 && (i+1)%a.family.WindowPeriod() != 0; !a.Listed && (kind == family.SlidingLayer) != windowed {
			return fmt.Errorf("layer_types: layer %d is %s, and llama.cpp runs %s with windows in %s", i, kind, a.Name, a.windows())
		}
	}
	if c.NoRopeLayers == nil && c.NoRopeInterval != a.class.NoRopeInterval {
		return fmt.Errorf("no_rope_layer_interval is %d, and llama.cpp runs %s with %d", c.NoRopeInterval, a.Name, a.class.NoRopeInterval)
	}
	for i, rotated := range c.NoRopeLayers {
		if want := a.class.NoRopeInterval == 0 || (i+1)%a.class.NoRopeInterval != 0; (rotated != 0) != want {
			return fmt.Errorf("no_rope_layers: layer %d is %d, and llama.cpp runs %s without rotary embeddings in each %dth layer only", i, rotated,
				a.Name, a.class.NoRopeInterval)
		}
	}
	if c.SlidingWindow != nil && a.family.WindowPeriod() == 0 && *c.SlidingWindow < c.MaxPositionEmbeddings && a.hasWindows(c.Settings) {
		m.Notes = append(m.Notes, fmt.Sprintf("llama.cpp runs %s without windows: after %d tokens, the results differ from those of the "+
			"checkpoint", a.Name, *c.SlidingWindow))
	}
	if want := a.queryScalar(c.NumHiddenLayers, c.HeadDim, c.HiddenSize, c.NumAttentionHeads); c.QueryPreAttnScalar != 0 &&
		c.QueryPreAttnScalar != want {
		return fmt.Errorf("query_pre_attn_scalar is %g: llama.cpp runs %s of %d layers with %g", c.QueryPreAttnScalar, a.Name, c.NumHiddenLayers,
			want)
	}
	return nil
}

// hasWindows reports whether a layer of the model has a window.
func (a architecture) hasWindows(s *family.Settings) bool {
	for i := range s.NumHiddenLayers {
		if kind, err := a.family.LayerType(s, i); err == nil && kind == family.SlidingLayer {
			return true
		}
	}
	return false
}

// windows describes the layers that have windows.
func (a architecture) windows() string {
	if a.family.WindowPeriod() == 0 {
		return "no layer"
	}
	return fmt.Sprintf("all but each %dth", a.family.WindowPeriod())
}

// queryScalar returns query_pre_attn_scalar of a model.
func (a architecture) queryScalar(layers, headDim, hidden, heads int) float64 {
	if layers == a.Scaled && heads > 0 {
		return float64(hidden / heads)
	}
	return float64(headDim)
}

// windowList is the metadata key of the layers with windows.
const windowList = "attention.sliding_window_pattern"

// describeWindows adds the list of layers with windows.
func (m *Model) describeWindows() error {
	a, c := m.architecture, m.config
	if !a.Listed {
		return nil
	}
	if n := len(c.LayerTypes); n > 0 && n != c.NumHiddenLayers {
		return fmt.Errorf("layer_types has %d layers, want num_hidden_layers, %d: fetch it again", n, c.NumHiddenLayers)
	}
	list := make([]bool, c.NumHiddenLayers)
	for i := range list {
		list[i] = (i+1)%a.family.WindowPeriod() != 0
		if len(c.LayerTypes) > 0 {
			list[i] = c.LayerTypes[i] == family.SlidingLayer
		}
	}
	m.set(windowList, list)
	return nil
}

// describeKeys adds the metadata of the architecture.
func (m *Model) describeKeys() error {
	for _, k := range m.architecture.Keys {
		var x *float64
		raw, ok := m.members[k.Config]
		if !ok {
			raw, ok = m.architecture.family.DefaultOf(k.Config)
		}
		if !ok {
			return fmt.Errorf("%s is missing: fetch it again", k.Config)
		}
		if err := json.Unmarshal(raw, &x); err != nil {
			return fmt.Errorf("%s: got %s, want a number", k.Config, raw)
		}
		switch {
		case x == nil:
		case k.Integer && (*x < 0 || *x > math.MaxUint32 || *x != math.Trunc(*x)):
			return fmt.Errorf("%s is %g, want a count", k.Config, *x)
		case k.Integer:
			m.set(k.Metadata, uint32(*x))
		default:
			m.set(k.Metadata, float32(*x))
		}
	}
	return nil
}
