package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// PlanRelabel plans the conversion of a quantized checkpoint to another convention, without
// changing any code or block scale. A scheme "" is the one that treats activations like that of
// the source. The calibration has scales of activations, if the source has none; nil for none.
// PlanRelabel returns an error if the checkpoint is not quantized, is damaged, or has a weight
// that the convention does not support, or if ctx ends.
func PlanRelabel(ctx context.Context, source *hf.Checkpoint, convention, scheme string, calibration *Calibration) (*Plan, error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, err
	}
	to, err := checkpoint.LookupConvention(convention)
	if err != nil {
		return nil, err
	}
	if err := sound(m); err != nil {
		return nil, err
	}
	p, err := planRelabelTo(m, to, scheme, calibration)
	if err == nil {
		p.noteLimits()
	}
	return p, err
}

// planRelabelTo is PlanRelabel for a sound checkpoint, without the notes of clients.
func planRelabelTo(source *checkpoint.Model, to *checkpoint.Convention, scheme string, calibration *Calibration) (*Plan, error) {
	formats := source.Formats()
	if err := admitMixed(to, formats); err != nil {
		return nil, fmt.Errorf("%s: %w, or requantize it", source.Source.Path, err)
	}
	c, err := relabelSchemes(source, to, formats, scheme, calibration)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Source.Path, err)
	}
	if c.OneFile() {
		return relabelGGUF(source, c, formats[0], calibration, nil)
	}
	p := newPlan(source, c, quant.Quantizer{Format: formats[0]})
	p.Quantizer = quant.Quantizer{} // it quantizes nothing
	if err := p.relabelAll(calibration); err != nil {
		return nil, err
	}
	p.noteGlobals()
	return p, p.complete(checkpoint.Settings{KVCache: p.kvCache})
}

// relabelAll plans every weight of the source.
func (p *Plan) relabelAll(calibration *Calibration) error {
	used := map[string]bool{}
	amaxes := inputsOf(p.source, calibration, used)
	for _, w := range p.source.Weights {
		d := decision{Weight: w}
		if p.source.ScalesOfValues(w) {
			continue
		} else if isCacheScale(w) {
			if err := p.renameCache(&d); err != nil {
				return err
			}
		} else if w.Quantized() {
			d.cast = p.castOf(w)
			if err := p.relabelWeight(&d, calibration, amaxes); err != nil {
				return err
			}
		} else if w.Rearranged() {
			d.action, d.stored = Decode, []checkpoint.Stored{{Spec: w.DenseSpec(w.Dtype)}}
		}
		p.add(d)
	}
	if err := p.recalibrateCache(calibration, used); err != nil {
		return fmt.Errorf("%s: %w", p.source.Source.Path, err)
	}
	return nil
}

// inputsOf returns the amax of inputs of the quantized weights (Calibration.joinedInputs); nil
// without a calibration.
func inputsOf(source *checkpoint.Model, calibration *Calibration, used map[string]bool) map[string]float64 {
	if calibration == nil {
		return nil
	}
	var weights []string
	for _, w := range source.Weights {
		if w.Quantized() {
			weights = append(weights, w.Name)
		}
	}
	return calibration.joinedInputs(source.Family(), weights, used)
}

// recalibrateCache adds scales of the KV cache if the source has none. It returns an error if
// the calibration has unused values.
func (p *Plan) recalibrateCache(c *Calibration, used map[string]bool) error {
	switch {
	case c == nil:
		return nil
	case c.caches() && p.kvCache:
		return errors.New("the source has scales of a KV cache, which are kept: leave them out of the calibration")
	case c.caches():
		if err := p.calibrateCache(c, used); err != nil {
			return err
		}
	}
	return c.unused(used)
}

// noteGlobals adds a note if weights have a global scale that clients of the convention do not
// read.
func (p *Plan) noteGlobals() {
	if n := p.unreadGlobals(); n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d weights have a global scale, which most clients of convention %s do not read: quantize the "+
			"original for this convention to have none", n, p.convention))
	}
}

// unreadGlobals returns the number of weights whose global scales the convention stores for the reverse
// conversion alone.
func (p *Plan) unreadGlobals() (n int) {
	global := func(s checkpoint.Stored) bool { return s.Part == checkpoint.Global }
	for _, d := range p.decisions {
		if d.Weight.Quantized() && slices.ContainsFunc(d.stored, global) && !slices.ContainsFunc(p.convention.Stored(p.formatOf(d),
			d.Weight.Name, d.Weight.Shape), global) {
			n++
		}
	}
	return n
}

// relabelSchemes is relabelScheme for several formats: a scheme that is named counts for those that have it, and a calibration for
// those that store scales of activations.
func relabelSchemes(source *checkpoint.Model, to *checkpoint.Convention, formats []quant.Format, scheme string,
	calibration *Calibration) (*checkpoint.Convention, error) {
	c := to
	for _, f := range formats {
		named, given := scheme, calibration
		if len(formats) > 1 {
			if _, err := to.With(f, scheme); err != nil && slices.ContainsFunc(formats, func(g quant.Format) bool {
				_, err := to.With(g, scheme)
				return err == nil
			}) {
				named = ""
			}
			if _, ok := to.WithActivations(f, checkpoint.Static); !ok {
				given = nil
			}
		}
		var err error
		if c, err = relabelScheme(source, c, f, named, given); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// relabelScheme returns the convention with only the scheme to relabel to. If none is named, it
// treats activations like the scheme of the source, if possible.
func relabelScheme(source *checkpoint.Model, to *checkpoint.Convention, f quant.Format, scheme string,
	calibration *Calibration) (*checkpoint.Convention, error) {
	if calibration != nil && calibration.inputs() {
		return chooseScheme(source, to, f, scheme, calibration)
	}
	static := source.HasInputScales(f)
	if scheme == "" {
		scheme = defaultScheme(source, to, f, static)
	}
	calibration = nil
	if only, err := to.With(f, scheme); err == nil {
		if _, a := only.Scheme(f); a == checkpoint.Static && static {
			calibration = &Calibration{ConstantInputs: true} // there are scales; only that matters here
		}
	}
	return chooseScheme(source, to, f, scheme, calibration)
}

// defaultScheme returns the scheme of a convention that treats activations like the source's,
// if there is one: static if the source has the scales, then dynamic, then weight-only. "" means
// the first scheme of the convention.
func defaultScheme(source *checkpoint.Model, to *checkpoint.Convention, f quant.Format, static bool) string {
	wanted := []checkpoint.Activations{source.ActivationsIn(f), checkpoint.Dynamic, checkpoint.WeightOnly}
	wanted = slices.DeleteFunc(wanted, func(a checkpoint.Activations) bool { return a == checkpoint.Static })
	if static {
		wanted = slices.Insert(wanted, 0, checkpoint.Static)
	}
	for _, a := range wanted {
		if only, ok := to.WithActivations(f, a); ok {
			name, _ := only.Scheme(f)
			return name
		}
	}
	return ""
}

// relabelWeight decides how a quantized weight is stored. amaxes is the result of inputsOf.
func (p *Plan) relabelWeight(d *decision, calibration *Calibration, amaxes map[string]float64) error {
	f := d.Weight.Format
	if d.cast != nil {
		f = d.cast.To
	}
	if why := p.rejects(d.Weight, f); why != "" {
		return fmt.Errorf("%s: convention %s does not support it: %s; nothing was written", d.Name, p.convention, why)
	}
	var input *float32
	if _, a := p.convention.Scheme(f); a == checkpoint.Static && calibration != nil && calibration.inputs() {
		scale, ok := p.inputScale(calibration, amaxes, d.Name, quant.Quantizer{Format: f})
		if !ok {
			return fmt.Errorf("calibration: the amax of the inputs of %s is missing", module(d.Name))
		}
		rounded := float32(scale)
		input = &rounded
	}
	d.action = Relabel
	if d.cast != nil {
		d.cast.input, d.stored = input, d.Cast(p.convention, f, 0, input)
		return nil
	}
	d.stored, d.metadata[0], d.metadata[1] = d.Relabeled(p.convention, input)
	return nil
}

// rejects returns why the convention does not support a quantized weight in format f, or "".
func (p *Plan) rejects(w *checkpoint.Weight, f quant.Format) string {
	c, fused, other := p.convention, "", ""
	if c.LinearOnly() {
		other = otherModule(p.source.Family(), w)
		if w.ExpertModules() != nil {
			fused = "it holds all experts of a layer, and that convention stores each separately: dequantize it and quantize the result"
		}
	}
	return cmp.Or(c.RejectsExperts(w), fused, c.Rejects(f, w.Name, w.Shape), other)
}

// sound returns an error if a checkpoint is not quantized in a supported way, or its structure
// is damaged.
func sound(source *checkpoint.Model) error {
	path := source.Source.Path
	problems := lasting(source)
	switch {
	case source.Quantized() == 0 && source.Simulated() && len(problems) == 0:
		return fmt.Errorf("%s: its weights are values beside scales (simulated quantization), not codes: dequantize it, or quantize it with "+
			"--requantize", path)
	case (source.Convention == nil || source.Quantized() == 0) && len(problems) > 0:
		return fmt.Errorf("%s: not quantized in a supported way: %s", path, problems[0])
	case source.Quantized() == 0 && len(source.Decoded) > 0:
		return fmt.Errorf("%s: its weights are %s, which no convention stores: dequantize it, or quantize it with --requantize",
			path, quantizedTypes(source))
	case source.Convention == nil || source.Quantized() == 0:
		return fmt.Errorf("%s: not quantized: name a checkpoint of convention %s", path, conventionNames())
	case len(problems) > 0:
		return fmt.Errorf("%s: %s", path, first(problems))
	}
	return nil
}

// decodable is sound for conversions that read values: it accepts tensors that are decoded as they are read, values beside scales, and
// GGUF files without quantized ones.
func decodable(source *checkpoint.Model) error {
	if (len(source.Decoded) > 0 || source.Simulated() || source.Architecture != "" && source.Quantized() == 0) && len(lasting(source)) == 0 {
		return nil
	}
	return sound(source)
}

func conventionNames() string {
	var names []string
	for _, c := range checkpoint.Conventions() {
		names = append(names, c.Name)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
