package convert

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
)

// hasCache reports whether a weight is a scale of the KV cache that the source declares, or of a quantized source.
func (p *Plan) hasCache(w *checkpoint.Weight) bool {
	return isCacheScale(w) && (p.source.Convention != nil || p.source.Cache() != "")
}

// keepsCache reports whether the result has the scales of the source's KV cache, which a calibration with others replaces. If it cannot
// have them, or declares no cache because the source has none of them, a note says so.
func (p *Plan) keepsCache(c *Calibration) bool {
	if c != nil && c.caches() {
		return false
	}
	cache := p.source.Cache()
	i := slices.IndexFunc(p.source.Weights, p.hasCache)
	if i < 0 {
		if cache != "" {
			p.Notes = append(p.Notes, fmt.Sprintf("the source declares a KV cache in %s and has no scales of it: the result declares none", cache))
		}
		return false
	}
	owner, _ := checkpoint.CacheOwner(p.source.Weights[i].Name)
	why := ""
	if _, stores := p.convention.StoredCache(owner, 1); !stores {
		why = fmt.Sprintf("convention %s stores none", p.convention)
	} else if cache != "" && cache != checkpoint.FP8Cache {
		why = fmt.Sprintf("they are of %s, and only %s is written", cache, checkpoint.FP8Cache)
	}
	if why != "" {
		p.Notes = append(p.Notes, "the scales of the source's KV cache are dropped: "+why)
	}
	return why == ""
}

// renameCache renames the scale of a KV cache as the convention does.
func (p *Plan) renameCache(d *decision) error {
	rows, cols := d.Weight.Matrix()
	if cache := p.source.Cache(); cache != "" && cache != checkpoint.FP8Cache {
		return fmt.Errorf("%s: the KV cache is in %s, and only %s is written: nothing was written", d.Name, cache, checkpoint.FP8Cache)
	}
	if rows*cols != 1 {
		return fmt.Errorf("%s: it has shape %v, and only one scale for a layer is written: nothing was written", d.Name, d.Shape)
	}
	scale, err := d.Weight.Read(0, 1)
	if err != nil {
		return err
	}
	owner, _ := checkpoint.CacheOwner(d.Name)
	stored, ok := p.convention.StoredCache(owner, scale.Data[0])
	if !ok {
		return fmt.Errorf("%s: convention %s stores no scales of a KV cache: nothing was written", d.Name, p.convention)
	}
	d.action, d.stored, p.kvCache = Relabel, []checkpoint.Stored{stored}, true
	return nil
}
