package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// RelabelOptions say how a quantized checkpoint is to be stored.
type RelabelOptions struct {
	Convention  *checkpoint.Convention
	Scheme      string       // "": one that does with activations what the source's does
	Calibration *Calibration // scales of activations, where the source has none
}

// PlanRelabel plans the conversion of a quantized checkpoint to another convention
// without a change to any code or scale of a block. It fails where the checkpoint is
// not quantized or not sound, and where the convention cannot hold one of its weights.
func PlanRelabel(source *checkpoint.Model, o RelabelOptions) (*Plan, error) {
	if err := sound(source); err != nil {
		return nil, err
	}
	path := source.Source.Path
	f, other := source.FormatIn()
	if other != nil {
		return nil, fmt.Errorf("%s: it mixes %s and %s, and a convention stores one block format: dequantize it and quantize it again", path, f, other)
	}
	if o.Convention.Is(checkpoint.GGUF()) {
		return relabelGGUF(source, f, o)
	}
	scheme, calibration := relabelScheme(source, f, o)
	c, err := chooseScheme(source, o.Convention, f, scheme, calibration)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p := &Plan{Source: source, Convention: c, Format: f, Ignore: []string{}, single: source.Source.Single}
	used := map[string]bool{}
	amaxes := o.inputs(source, used)
	for _, w := range source.Weights {
		d := Decision{Weight: w}
		if _, ok := checkpoint.CacheOwner(w.Name); ok {
			if err := p.renameCache(&d); err != nil {
				return nil, err
			}
		} else if w.Quantized() {
			if err := p.relabelWeight(&d, o.Calibration, amaxes); err != nil {
				return nil, err
			}
		}
		p.add(d)
	}
	if err := p.recalibrateCache(o.Calibration, used); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.noteGlobals()
	return p, p.complete(checkpoint.Settings{KVCache: p.KVCache})
}

// inputs returns the largest magnitudes of inputs of the quantized weights
// (Calibration.joinedInputs); nil where none are given.
func (o RelabelOptions) inputs(source *checkpoint.Model, used map[string]bool) map[string]float64 {
	if o.Calibration == nil {
		return nil
	}
	var weights []string
	for _, w := range source.Weights {
		if w.Quantized() {
			weights = append(weights, w.Name)
		}
	}
	return o.Calibration.joinedInputs(weights, used)
}

// recalibrateCache adds the scales of a KV cache to weights that came without, and fails
// where the calibration has what nothing takes.
func (p *Plan) recalibrateCache(c *Calibration, used map[string]bool) error {
	switch {
	case c == nil:
		return nil
	case c.caches() && p.KVCache:
		return errors.New("it has scales of a KV cache, which stay as they are: leave those of the calibration out")
	case c.caches():
		if err := p.calibrateCache(c, used); err != nil {
			return err
		}
	}
	return c.unused(used)
}

// noteGlobals says that weights have a global scale where clients of the convention read
// none.
func (p *Plan) noteGlobals() {
	global := func(s checkpoint.Stored) bool { return s.Part == checkpoint.Global }
	n := 0
	for _, d := range p.Decisions {
		if d.Weight.Quantized() && slices.ContainsFunc(d.Stored, global) && !slices.ContainsFunc(p.Convention.Stored(p.Format, d.Weight.Name, d.Weight.Shape), global) {
			n++
		}
	}
	if n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d weights have a global scale, which most clients of convention %s do not read (verify --client says which): quantize the source for it to have weights without", n, p.Convention))
	}
}

// relabelScheme returns the scheme to relabel to, "" for the default, and the
// calibration that says whether scales of activations will be there.
func relabelScheme(source *checkpoint.Model, f quant.Format, o RelabelOptions) (scheme string, calibration *Calibration) {
	complete := true
	for _, w := range source.Weights {
		if w.Quantized() {
			_, ok := w.InputScale()
			complete = complete && ok
		}
	}
	if o.Calibration != nil && o.Calibration.inputs() {
		return o.Scheme, o.Calibration
	}
	if complete {
		calibration = NewConstantCalibration(true, false) // there are scales, whichever
	}
	if o.Scheme != "" {
		if only, err := o.Convention.With(f, o.Scheme); err == nil {
			if _, a := only.Scheme(f); a != checkpoint.Static {
				calibration = nil // they are kept in the metadata
			}
		}
		return o.Scheme, calibration
	}
	if complete {
		if only, ok := o.Convention.WithActivations(f, checkpoint.Static); ok {
			name, _ := only.Scheme(f)
			return name, calibration
		}
	}
	wanted := source.ActivationsIn(f)
	for _, a := range []checkpoint.Activations{wanted, checkpoint.Dynamic, checkpoint.WeightOnly} {
		if only, ok := o.Convention.WithActivations(f, a); ok && a != checkpoint.Static {
			name, _ := only.Scheme(f)
			return name, nil
		}
	}
	return "", nil
}

// relabelWeight decides how a quantized weight is stored. amaxes are those of
// RelabelOptions.inputs.
func (p *Plan) relabelWeight(d *Decision, calibration *Calibration, amaxes map[string]float64) error {
	w := d.Weight
	why := p.Convention.Refuses(p.Format, w.Name, w.Shape)
	if class := foreignClass(w.Name); why == "" && class != "" && p.Convention.LinearOnly() {
		why = class
	}
	if experts := p.Convention.RefusesExperts(w); experts != "" {
		why = experts
	} else if w.ExpertModules() != nil && p.Convention.LinearOnly() {
		why = "all experts of a layer are in it, and that convention has each by itself: dequantize it and quantize that"
	}
	if why != "" {
		return fmt.Errorf("%s: convention %s cannot hold it: %s; nothing was written", w.Name, p.Convention, why)
	}
	var input *float32
	if calibration != nil && calibration.inputs() {
		scale, ok := p.inputScale(calibration, amaxes, w.Name)
		if !ok {
			return fmt.Errorf("calibration: the largest magnitude of the inputs of %s is missing", module(w.Name))
		}
		input = &scale
	}
	d.Action = Relabel
	d.Stored, d.metadata[0], d.metadata[1] = w.Relabeled(p.Convention, input)
	return nil
}

// renameCache gives the scale of a KV cache the name that it has in the convention.
func (p *Plan) renameCache(d *Decision) error {
	scale, err := d.Weight.Read(0, 1)
	if err != nil {
		return err
	}
	owner, _ := checkpoint.CacheOwner(d.Weight.Name)
	stored, ok := p.Convention.StoredCache(owner, scale.Data[0])
	if !ok {
		return fmt.Errorf("%s: convention %s stores no scales of a KV cache: nothing was written", d.Weight.Name, p.Convention)
	}
	d.Action, d.Stored, p.KVCache = Relabel, []checkpoint.Stored{stored}, true
	return nil
}

// relabel writes the codes and scales of a tile as they are.
func (r *run) relabel(t checkpoint.Tile, d Decision, s *scratch) (*measure.Accumulator, error) {
	sums := measure.New(verify.BlockLength)
	if !d.Weight.Quantized() {
		return sums, nil // its value is known, and written
	}
	q, err := d.Weight.ReadCodes(t)
	if err != nil {
		return nil, err
	}
	return sums, r.store(t, d, q, 0, s)
}

// sound fails where a checkpoint is not quantized in a way that is known, or its
// structure is broken.
func sound(source *checkpoint.Model) error {
	path := source.Source.Path
	problems := lasting(source)
	switch {
	case (source.Convention == nil || source.Quantized() == 0) && len(problems) > 0:
		return fmt.Errorf("%s: nothing here is quantized in a way that is known: %s", path, problems[0])
	case source.Convention == nil || source.Quantized() == 0:
		return fmt.Errorf("%s: nothing here is quantized: name a checkpoint that quantize made, or another of convention %s", path, conventionNames())
	case len(problems) > 0:
		return fmt.Errorf("%s: %s (%d problems; microscale inspect lists them)", path, problems[0], len(problems))
	}
	return nil
}
