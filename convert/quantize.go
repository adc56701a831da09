package convert

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// QuantizeOptions say how to quantize a checkpoint.
type QuantizeOptions struct {
	Quantizer  quant.Quantizer // of weights that no rule matches; the zero Quantizer, with Rules: they stay as they are
	Rules      []Rule          // how other weights are quantized; the first that matches counts
	Convention string          // by name; "": with Requantize that of the source; else compressed-tensors if it has the format, or plain
	Scheme     string          // of the convention; "": the first for the format that suits the calibration
	FileType   uint32          // general.file_type of a GGUF file, of PlanFile.FileType; 0: that of the format of most weights

	// Client is the program that loads the result, by name; "": any. It chooses the convention, and
	// weights that it cannot read stay unquantized. If that would be most of them, there is no plan.
	Client string

	Include []*regexp.Regexp // quantize matching weights even if they stay unquantized by default
	Exclude []*regexp.Regexp // never quantize matching weights; takes precedence over Include

	Calibration *Calibration            // scales of activations; nil: store none
	Method      calibration.Method      // of choosing scales and codes; those but Nearest need Statistics, and change Quantizer
	Statistics  *calibration.Statistics // of the inputs of the linear layers; open while the plan runs
	// StatisticsKey identifies Statistics by what they were collected from, in place of a digest. With a key alone, a plan only finds
	// what an earlier run finished (RunOptions.Resume).
	StatisticsKey string

	// Distilled describes the training of scales that follows (train.Distillation, Rescale), for the metadata of the result; "": none.
	Distilled string

	// accept a quantized source, and quantize the values that clients decode; weights that Rules keep keep their codes
	Requantize bool

	// KeepF32 leaves unquantized weights in F32 if all weights to quantize are. Otherwise the result,
	// except in convention plain and in GGUF files, has them in BF16, to which some clients decode codes.
	KeepF32 bool

	rejected  rejections // by the client
	needsBF16 bool       // the client cannot read unquantized weights of another dtype
}

// PlanQuantize plans the quantization of a checkpoint. It returns an error if the source is
// quantized already ([ErrQuantized]), the convention does not support the format, a pattern
// matches nothing, no weight would be quantized, or ctx ends.
func PlanQuantize(ctx context.Context, source *hf.Checkpoint, o QuantizeOptions) (*Plan, error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, err
	}
	if o.Client != "" {
		return planForClient(m, o)
	}
	p, err := planQuantize(m, o)
	if err != nil {
		return nil, err
	}
	p.noteLimits()
	return p, nil
}

// planQuantize is PlanQuantize without a client.
func planQuantize(m *checkpoint.Model, o QuantizeOptions) (*Plan, error) {
	c, err := o.convention(m)
	if err != nil {
		return nil, err
	}
	if err := o.admit(m, c); err != nil {
		return nil, err
	}
	var same *llamacpp.Model // of the source and of the result
	if c.OneFile() && m.Source.GGUF != nil {
		if m, same, err = rawGGUF(m); err != nil {
			return nil, err
		}
	}
	if o.storesStatistics(c) {
		o.Calibration = o.Calibration.withInputs(o.Statistics)
	}
	if c, err = o.chooseSchemes(m, c); err != nil {
		return nil, err
	}
	treatments, notes, err := o.treatments(c)
	if err != nil {
		return nil, err
	}
	s := selection{include: o.Include, exclude: o.Exclude, rules: o.Rules, treatments: treatments, family: m.Family(), rejected: o.rejected}
	if same != nil {
		s.further = furtherNames(m, same)
	}
	if err := s.matched(m); err != nil {
		return nil, err
	}
	notes = append(notes, o.noteSchemes()...)
	if c.OneFile() {
		p, err := planGGUF(m, c, s, o, same)
		if err != nil {
			return nil, err
		}
		p.Notes = append(p.Notes, notes...)
		return p, nil
	}
	p := newPlan(m, c, s.main())
	p.Notes = append(p.Notes, notes...)
	if err := p.decide(s, o.Calibration); err != nil {
		return nil, err
	}
	if err := p.admitRules(s, map[*quant.Quantizer]bool{}); err != nil {
		return nil, err
	}
	if err := p.admitKept(); err != nil {
		return nil, err
	}
	if err := p.admitSets(); err != nil {
		return nil, err
	}
	p.roundRest(o)
	if err := p.quantizesAny(); err != nil {
		return nil, err
	}
	p.noteLeft(o.Include)
	p.noteIncluded(o.Include)
	if err := p.admitLarger(s, o.Convention != ""); err != nil {
		return nil, err
	}
	if err := p.calibrate(o.Calibration); err != nil {
		return nil, err
	}
	if err := p.useStatistics(o); err != nil {
		return nil, err
	}
	return p, p.complete(checkpoint.Settings{KVCache: p.kvCache, PowerOfTwo: p.Quantizer.PowerOfTwo})
}

// storesStatistics reports whether the amaxes of statistics become the scales of activations: a scheme that stores them is
// named, and the calibration has none.
func (o QuantizeOptions) storesStatistics(c *checkpoint.Convention) bool {
	if o.Statistics == nil || o.Calibration != nil && o.Calibration.inputs() {
		return false
	}
	for _, f := range o.Formats() {
		name, err := o.schemeOf(f)
		if err != nil || name == "" {
			continue // chooseSchemes returns the error
		}
		only, err := c.With(f, name)
		if err != nil {
			continue // as above
		}
		if _, activations := only.Scheme(f); activations == checkpoint.Static {
			return true
		}
	}
	return false
}

// convention returns the named convention, or the default for the source.
func (o QuantizeOptions) convention(m *checkpoint.Model) (*checkpoint.Convention, error) {
	holds := func(c *checkpoint.Convention) bool {
		mixes := c.Mixes() || len(o.Rules) == 0 && len(o.Formats()) < 2
		return mixes && !slices.ContainsFunc(o.Formats(), func(f quant.Format) bool { return !c.Holds(f) })
	}
	if c := m.Convention; o.Convention == "" && o.Requantize && c != nil && !c.OneFile() && holds(c) {
		if known, err := checkpoint.LookupConvention(c.Name); err == nil { // others are only read
			return known, nil
		}
	}
	if o.Convention == "" {
		return m.DefaultConvention(o.Formats()...), nil
	}
	return checkpoint.LookupConvention(o.Convention)
}

// admit returns an error if the source cannot be quantized with the options.
func (o QuantizeOptions) admit(m *checkpoint.Model, c *checkpoint.Convention) error {
	if len(o.Formats()) == 0 {
		return errNoFormat
	}
	if o.Scheme != "" && o.Quantizer.Format.Element == nil {
		return fmt.Errorf("scheme %s: no format is named for weights without a rule: name the scheme in the rule, as FORMAT:SCHEME", o.Scheme)
	}
	for _, q := range o.Quantizers() {
		if _, ok := encoderOf(q.Format); ok && !c.Holds(q.Format) {
			return fmt.Errorf("%s is a type of GGUF files: choose a destination that ends in %s", q.Format, gguf.Suffix)
		}
		if !q.Format.Scaled() && !c.Holds(q.Format) {
			return fmt.Errorf("%s has no scales: choose a block-scaled format, or dequantize to change the dtype of a checkpoint", q.Format)
		}
		if err := q.Validate(); err != nil {
			return err
		}
	}
	if err := admitMixed(c, o.Formats()); err != nil {
		return err
	}
	if err := rejectForeign(m); err != nil {
		return err
	}
	if o.Requantize && (m.Convention != nil || len(m.Decoded) > 0 || m.Simulated()) {
		return decodable(m)
	}
	return rejectQuantized(m)
}

// decide plans every weight of the source. The result keeps the scales of the source's KV cache, unless the calibration has others or the
// convention cannot have them.
func (p *Plan) decide(s selection, c *Calibration) error {
	replaced, dropped := c != nil && c.caches(), p.dropsCache()
	if dropped != "" && !replaced {
		p.Notes = append(p.Notes, dropped)
	}
	for _, w := range p.source.Weights {
		switch {
		case p.source.ScalesOfValues(w):
			continue
		case p.hasCache(w) && !replaced && dropped == "":
			d := decision{Weight: w}
			if err := p.renameCache(&d); err != nil {
				return err
			}
			p.add(d)
			continue
		case p.hasCache(w):
			continue
		}
		for _, d := range p.parts(w, s) {
			switch {
			case d.reason.cause == noCause:
				d.action, d.stored = Quantize, p.convention.Stored(d.quantizer.Format, d.Name, d.Shape)
			case d.Quantized() && (d.leftByRules() || len(s.rules) > 0 && d.reason.cause == causeRole) &&
				p.rejects(d.Weight, d.Weight.Format) == "" &&
				p.convention.Holds(d.Weight.Format):
				if why := p.lacksInput(d.Weight); why != "" {
					return fmt.Errorf("%s keeps its codes, but %s", d.Name, why)
				}
				d.action = Relabel
				d.stored, d.metadata[0], d.metadata[1] = d.Relabeled(p.convention, nil)
			case d.Rearranged(), d.Quantized(): // its bytes are not those of the result
				d.action, d.stored = Decode, []checkpoint.Stored{{Spec: d.DenseSpec(d.Dtype)}}
			}
			p.add(d)
		}
	}
	return nil
}

// lacksInput returns why the result cannot have the codes of a weight of the source: its scheme stores a scale of activations,
// which the source lacks; "" if it can.
func (p *Plan) lacksInput(w *checkpoint.Weight) string {
	scheme, activations := p.convention.Scheme(w.Format)
	if _, ok := w.InputScale(); ok || activations != checkpoint.Static {
		return ""
	}
	return fmt.Sprintf("scheme %s stores a scale of its activations, which the source lacks: name a weight-only scheme of %s, as "+
		"FORMAT:SCHEME, or let a rule quantize it", scheme, w.Format)
}

// parts returns why w is not quantized. If w holds all experts of a layer, the convention stores each
// separately and some can be quantized, parts returns it for each expert.
func (p *Plan) parts(w *checkpoint.Weight, s selection) []decision {
	asked := func(w *checkpoint.Weight, names ...string) decision {
		q, why := s.decide(w, p.convention, names...)
		return decision{Weight: w, quantizer: q, reason: why}
	}
	whole := asked(w)
	if whole.reason.cause != noCause && p.convention.LinearOnly() && !w.Quantized() && !w.ExpertsBiased() && !matches(s.exclude, w.Name) {
		var experts []decision
		for _, e := range w.Split() {
			experts = append(experts, asked(e, w.Name))
		}
		if slices.ContainsFunc(experts, func(d decision) bool { return d.reason.cause == noCause }) {
			return experts
		}
	}
	return []decision{whole}
}

// quantizesAny returns an error if no weight is quantized.
func (p *Plan) quantizesAny() error {
	switch path := p.source.Source.Path; {
	case p.Count(Quantize) > 0:
		return nil
	case len(p.decisions) == 0:
		return fmt.Errorf("%s: no tensors: name a checkpoint with weights", path)
	default:
		remedy := "include those that stay unquantized by default"
		if slices.ContainsFunc(p.decisions, func(d decision) bool { return d.reason.cause == causeUser }) {
			remedy = "change the rules or patterns by which they stay as they are"
		}
		return because(errNothing, fmt.Errorf("%s: no weight would be quantized: %s; %s", path, p.reasons(), remedy))
	}
}

// noteIncluded adds a note if matrices that the user includes stay unquantized.
func (p *Plan) noteIncluded(include []*regexp.Regexp) {
	var first *decision
	n := 0
	for i, d := range p.decisions {
		switch {
		case d.reason.cause == noCause, d.reason.cause == causeUser, len(d.Shape) < 2, d.ExpertModules() != nil, !matches(include, d.Name):
			continue
		}
		if n++; first == nil {
			first = &p.decisions[i]
		}
	}
	if n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d included weights are not quantized, the first %s: %s", n, first.Name, first.reason))
	}
}

// noteLeft adds a note for each reason why experts in one tensor, which are most of a model, or matrices with a
// number of columns that the convention does not support are not quantized, and one if the layout of quantized
// experts is a guess. Those that the client rejects, or that the user includes, have a note already.
func (p *Plan) noteLeft(include []*regexp.Regexp) {
	all, guess := int64(0), ""
	found, reasons := map[Reason]*stays{}, []Reason{}
	for i, d := range p.decisions {
		all += d.StoredBytes()
		switch {
		case d.reason.cause == noCause && guess == "":
			guess = d.ExpertsGuess()
		case d.reason.cause != causeClient && d.leftExperts(), p.leftColumns(&d) && !matches(include, d.Name):
			if found[d.reason] == nil {
				found[d.reason], reasons = &stays{}, append(reasons, d.reason)
			}
			found[d.reason].add(&p.decisions[i])
		}
	}
	for _, reason := range reasons {
		s := found[reason]
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d weights, with %d of %d bytes, are not quantized, the first %s: %s; %s",
			s.n, len(p.decisions), s.bytes, all, s.first.Name, reason, p.adviceLeft(s.first)))
	}
	if guess != "" {
		p.Notes = append(p.Notes, guess)
	}
}

// leftColumns reports whether the weight is not quantized only because the convention does not support its number of
// columns.
func (p *Plan) leftColumns(d *decision) bool {
	return d.reason.cause == causeConvention && len(d.Shape) > 1 && d.reason.Detail == p.convention.RejectsColumns(p.Format,
		d.Shape[len(d.Shape)-1])
}

// adviceLeft returns how a weight can be quantized that noteLeft counts.
func (p *Plan) adviceLeft(d *decision) string {
	if d.leftExperts() {
		return d.adviceExperts()
	}
	full, err := checkpoint.LookupConvention(p.convention.Name)
	if err != nil {
		return "choose another format"
	}
	cols := d.Shape[len(d.Shape)-1]
	for _, name := range full.Schemes(p.Format) {
		if only, err := full.With(p.Format, name); err == nil && only.RejectsColumns(p.Format, cols) == "" {
			return fmt.Sprintf("scheme %s quantizes them, for clients that decode weights", name)
		}
	}
	formats := slices.DeleteFunc(full.Formats(), func(f quant.Format) bool { return !f.Scaled() || full.RejectsColumns(f, cols) != "" })
	if len(formats) == 0 {
		return fmt.Sprintf("no format of convention %s has such rows", full)
	}
	return "they can be in " + formatNames(formats)
}
