package convert

import (
	"fmt"

	"github.com/microscale-go/microscale/checkpoint"
)

// hasCache reports whether a weight is a scale of the KV cache that the source declares, or of a quantized source.
func (p *Plan) hasCache(w *checkpoint.Weight) bool {
	return isCacheScale(w) && (p.source.Convention != nil || p.source.Cache() != "")
}

// dropsCache returns why the result lacks the scales of the source's KV cache, or declares no cache because the source has none of them;
// "" if it has them, or the source has neither.
func (p *Plan) dropsCache() string {
	found := false
	for _, w := range p.source.Weights {
		if !p.hasCache(w) {
			continue
		}
		found = true
		if why := p.rejectsCache(w); why != "" {
			return fmt.Sprintf("the scales of the source's KV cache are dropped, the first %s: %s", w.Name, why)
		}
	}
	if cache := p.source.Cache(); cache != "" && !found {
		return fmt.Sprintf("the source declares a KV cache in %s and has no scales of it: the result declares none", cache)
	}
	return ""
}

// rejectsCache returns why the result cannot have a scale of the source's KV cache, or "".
func (p *Plan) rejectsCache(w *checkpoint.Weight) string {
	owner, _ := checkpoint.CacheOwner(w.Name)
	rows, cols := w.Matrix()
	cache := p.source.Cache()
	if _, stores := p.convention.StoredCache(owner, 1); !stores {
		return fmt.Sprintf("convention %s stores no scales of a KV cache", p.convention)
	} else if cache != "" && cache != checkpoint.FP8Cache {
		return fmt.Sprintf("the KV cache is in %s, and only %s is written", cache, checkpoint.FP8Cache)
	} else if rows*cols != 1 {
		return fmt.Sprintf("it has shape %v, and only one scale for a layer is written", w.Shape)
	}
	return ""
}

// renameCache renames the scale of a KV cache as the convention does.
func (p *Plan) renameCache(d *decision) error {
	if why := p.rejectsCache(d.Weight); why != "" {
		return fmt.Errorf("%s: %s: nothing was written; dequantize the source, which leaves these scales out, and quantize the result",
			d.Name, why)
	}
	scale, err := d.Weight.Read(0, 1)
	if err != nil {
		return err
	}
	owner, _ := checkpoint.CacheOwner(d.Name)
	stored, _ := p.convention.StoredCache(owner, scale.Data[0])
	d.action, d.stored, p.kvCache = Relabel, []checkpoint.Stored{stored}, true
	return nil
}
