package family

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// The types of layers in config.json.
const (
	SlidingLayer = "sliding_attention"
	FullLayer    = "full_attention"
)

// LayerType returns whether a layer has a window.
func (f *Family) LayerType(s *Settings, layer int) (string, error) {
	sliding := false
	switch {
	case f.window.kind == windowNever, f.window.kind == windowLate && !s.UseSlidingWindow:
		return FullLayer, nil // whatever layer_types says: transformers has no window then
	case len(s.LayerTypes) > 0:
		t := s.LayerTypes[layer]
		if t != SlidingLayer && t != FullLayer {
			return "", Unsupported(fmt.Errorf("config.json: layer_types: %q is not supported: want %s or %s", t, SlidingLayer, FullLayer))
		}
		return t, nil
	case f.window.kind == windowAlways:
		sliding = s.SlidingWindow != nil
	case f.window.kind == windowUsed:
		sliding = s.UseSlidingWindow && s.SlidingWindow != nil
	case f.window.kind == windowLate:
		sliding = layer >= s.MaxWindowLayers
	case f.window.kind == windowPattern:
		period := f.window.period
		for _, n := range []int{s.SavedWindowPattern, s.WindowPattern} {
			if n > 0 {
				period = n
			}
		}
		sliding = (layer+1)%period != 0
	}
	if sliding {
		return SlidingLayer, nil
	}
	return FullLayer, nil
}

// HasRope reports whether a layer has rotary embedding.
func (s *Settings) HasRope(layer int) bool {
	switch {
	case layer < len(s.NoRopeLayers):
		return s.NoRopeLayers[layer] != 0
	case s.NoRopeInterval > 0:
		return (layer+1)%s.NoRopeInterval != 0
	}
	return true
}

// HasExperts reports whether a layer of a mixture has experts.
func (s *Settings) HasExperts(layer int) bool {
	step := max(1, s.SparseStep)
	return layer >= s.FirstDense && (layer+1)%step == 0 && !slices.Contains(s.DenseLayers, layer)
}

// layerName divides the name of a tensor of a layer: the modules before, the number of the layer, and the tensor in it.
var layerName = regexp.MustCompile(`^((?:[A-Za-z_]+\.)*?(?:layers|h|blocks))\.(\d+)\.(.+)$`)

// CutLayer returns the list of layers to which a tensor belongs, the number of the layer, and the tensor in it.
func CutLayer(name string) (list string, number int, tensor string, ok bool) {
	parts := layerName.FindStringSubmatch(name)
	if parts == nil {
		return "", 0, "", false
	}
	number, err := strconv.Atoi(parts[2])
	return parts[1], number, parts[3], err == nil
}
