package convert

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert/internal/lossless"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// CastOptions say how to cast a checkpoint to another block format.
type CastOptions struct {
	Format      quant.Format
	Convention  string // "": that of the source if it supports the format, else the default
	Client      string // that loads the result, in place of a convention; "" for none
	Scheme      string // "": one that treats activations like that of the source
	Calibration *Calibration
	Requantize  bool                  // round blocks without an exact cast; without it, they are an error of Run
	Threads     int                   // goroutines; 0: one per processor
	Progress    func(verify.Progress) // of reading blocks to plan; called by several goroutines, one call at a time; may be nil
}

// A Cast is what a plan found out about the cast of one weight.
type Cast struct {
	Weight          string
	From, To        string // block formats
	Condition       string // when a block is exact
	Blocks, Inexact int64  // of the result
	Reasons         map[string]int64
	First           []InexactBlock // the first of them
}

// An InexactBlock is a block of the result without an exact cast.
type InexactBlock struct {
	Row int // the first row of the block
	Col int // the index of the block in its rows
	Why string
}

// Formats returns the formats to which [PlanCast] casts some other format, or its own. They do not depend on the options.
func (CastOptions) Formats() (formats []quant.Format) {
	for _, f := range quant.Formats() {
		if slices.ContainsFunc(lossless.Table(), func(c lossless.Cast) bool { return c.To.Name == f.Name }) {
			formats = append(formats, f)
		}
	}
	return formats
}

// listedBlocks is the number of blocks of a weight in Cast.First.
const listedBlocks = 100

// A cast is the cast of a weight.
type cast struct {
	lossless.Cast
	convention *checkpoint.Convention // of the result

	levels   []float32 // decode scales of the result by code; nil for FP32 scales
	input    *float32  // decode scale of activations of a calibration; nil: that of the source
	unscaled bool      // the result has global scales of 1: clients ignore that of the weight
	found    Cast
}

// PlanCast plans the conversion of the weights of a quantized checkpoint to another block format, of which each block decodes to
// the same values. Weights of formats that are not cast to it keep theirs. It reads codes and scales: they decide
// which global scale is exact for most blocks, and which blocks are not exact (Plan.Casts).
//
// Weights that clients fuse share a global scale. With the format of the source, weights get such a global scale, or none if
// clients of the convention read none.
func PlanCast(ctx context.Context, source *hf.Checkpoint, o CastOptions) (*Plan, error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := sound(m); err != nil {
		return nil, err
	}
	formats, left := []quant.Format{o.Format}, []string{}
	for _, f := range m.Formats() {
		if _, ok := lossless.Lookup(f, o.Format); !ok && f.Name != o.Format.Name {
			formats, left = append(formats, f), append(left, f.Name)
		}
	}
	if err := admitCast(m, o.Format); err != nil {
		return nil, fmt.Errorf("%s: %w", source.Path, err)
	}
	plan := func(c *checkpoint.Convention, scheme string) (*Plan, error) {
		return planCastTo(m, c, formats, scheme, o)
	}
	var p *Plan
	if o.Client != "" {
		if c, lookupErr := client.Lookup(o.Client); lookupErr == nil { // otherwise relabelFor returns the error
			stores := func(f quant.Format) bool { _, err := c.Stores(f); return err == nil }
			if err = admitStored(m, o.Format, c.Name, stores); err != nil {
				err = fmt.Errorf("%s: %w", source.Path, err)
			}
		}
		if err == nil {
			p, err = relabelFor(m, o.Client, o.Scheme, formats, plan)
		}
	} else {
		var c *checkpoint.Convention
		if c, err = o.convention(m, formats); err == nil {
			if err = admitStored(m, o.Format, "convention "+c.Name, c.Holds); err == nil {
				p, err = plan(c, o.Scheme)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", source.Path, err)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("weights in %s keep their format: there is no lossless cast to %s", strings.Join(left, ", "),
			o.Format))
	}
	p.noteLimits()
	return p, p.findExact(ctx)
}

// admitCast returns an error if no weight of a checkpoint has a cast to a format.
func admitCast(m *checkpoint.Model, to quant.Format) error {
	var from, others []string // formats without the cast, and what they can be cast to
	for _, f := range m.Formats() {
		if _, ok := lossless.Lookup(f, to); ok {
			return nil
		}
		if f.Name == to.Name {
			continue
		}
		from = append(from, f.Name)
		if formats := lossless.To(f); len(formats) > 0 {
			others = append(others, fmt.Sprintf("%s can be cast to %s; or ", f, formatNames(formats)))
		}
	}
	if len(from) == 0 {
		return fmt.Errorf("its weights are in %s already: there is nothing to cast", to)
	}
	return fmt.Errorf("no lossless cast from %s to %s: %squantize the original", strings.Join(from, ", "), to, strings.Join(others, ""))
}

// admitStored returns an error, which names other casts of the weights, if a convention or client cannot store the format of a cast.
func admitStored(m *checkpoint.Model, to quant.Format, who string, stores func(quant.Format) bool) error {
	if stores(to) {
		return nil
	}
	others := slices.DeleteFunc(CastOptions{}.Formats(), func(f quant.Format) bool {
		casts := func(from quant.Format) bool { _, ok := lossless.Lookup(from, f); return ok && from.Name != f.Name }
		return !stores(f) || !slices.ContainsFunc(m.Formats(), casts)
	})
	if len(others) == 0 {
		return fmt.Errorf("%s does not support %s, nor another format to which the weights can be cast: quantize the original", who, to)
	}
	return fmt.Errorf("%s does not support %s: cast to %s, or quantize the original", who, to, formatNames(others))
}

// convention returns the named convention, or that of the source if it stores all formats, else the default for them.
func (o CastOptions) convention(m *checkpoint.Model, formats []quant.Format) (*checkpoint.Convention, error) {
	holds := func(f quant.Format) bool { return m.Convention.Holds(f) }
	switch c := m.Convention; {
	case o.Convention != "":
		return checkpoint.LookupConvention(o.Convention)
	case !c.OneFile() && (len(formats) == 1 || c.Mixes()) && !slices.ContainsFunc(formats, func(f quant.Format) bool { return !holds(f) }):
		if known, err := checkpoint.LookupConvention(c.Name); err == nil {
			return known, nil
		}
	}
	return m.DefaultConvention(formats...), nil
}

// planCastTo plans all of a cast but its global scales. formats are those of the result.
func planCastTo(m *checkpoint.Model, to *checkpoint.Convention, formats []quant.Format, scheme string, o CastOptions) (*Plan, error) {
	if err := admitMixed(to, formats); err != nil {
		return nil, err
	}
	c := to
	var err error
	for _, f := range formats {
		named := scheme
		if _, err := to.With(f, scheme); err != nil && f.Name != o.Format.Name {
			named = ""
		}
		from := slices.IndexFunc(m.Formats(), func(g quant.Format) bool { _, ok := lossless.Lookup(g, f); return ok && g.Name != f.Name })
		if f.Name == o.Format.Name && from >= 0 && named == "" && (o.Calibration == nil || !o.Calibration.inputs()) {
			named = castScheme(m, c, m.Formats()[from], f)
			c, err = chooseScheme(m, c, f, named, nil)
		} else if f.Name == o.Format.Name && from >= 0 {
			c, err = chooseScheme(m, c, f, named, o.Calibration)
		} else {
			c, err = relabelScheme(m, c, f, named, o.Calibration)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.OneFile() {
		p, err := relabelGGUF(m, c, o.Format, o.Calibration, &o)
		if err == nil {
			p.noteDropped()
		}
		return p, err
	}
	p := newPlan(m, c, quant.Quantizer{Format: o.Format})
	p.Quantizer, p.casting = quant.Quantizer{}, &o
	if err := p.relabelAll(o.Calibration); err != nil {
		return nil, err
	}
	p.noteDropped()
	return p, p.complete(checkpoint.Settings{KVCache: p.kvCache})
}

// castScheme returns the scheme that treats activations like that of the source, if there is one: the same, then dynamic, then weight-only.
func castScheme(m *checkpoint.Model, to *checkpoint.Convention, from, f quant.Format) string {
	wanted := []checkpoint.Activations{m.ActivationsIn(from), checkpoint.Dynamic, checkpoint.WeightOnly}
	for _, a := range slices.DeleteFunc(wanted, func(a checkpoint.Activations) bool { return a == checkpoint.Static }) {
		if only, ok := to.WithActivations(f, a); ok {
			name, _ := only.Scheme(f)
			return name
		}
	}
	return ""
}

// castOf returns the cast of a weight, nil if the plan casts nothing or there is none.
func (p *Plan) castOf(w *checkpoint.Weight) *cast {
	if p.casting == nil {
		return nil
	}
	row, ok := lossless.Lookup(w.Format, p.casting.Format)
	if !ok {
		return nil
	}
	rows, cols := w.Matrix()
	high, wide := row.To.ScaleShape(rows, cols)
	return &cast{Cast: row, convention: p.convention, found: Cast{Weight: w.Name, From: row.From.Name, To: row.To.Name,
		Condition: row.Condition, Blocks: int64(high) * int64(wide), Reasons: map[string]int64{}}}
}

// noteDropped adds a note if weights had scales of their activations that the result does not have.
func (p *Plan) noteDropped() {
	n, first := 0, ""
	for _, d := range p.decisions {
		if d.cast == nil {
			continue
		}
		_, has := d.InputScale()
		if _, activations := p.convention.Scheme(d.cast.To); has && activations != checkpoint.Static {
			n, first = n+1, cmp.Or(first, d.Name)
		}
	}
	if n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the scales of the activations of %d weights, the first %s, are dropped: clients quantize these "+
			"activations by their values, or not at all", n, first))
	}
}

// Inexact returns the number of blocks without an exact cast, and of all blocks that are cast.
func (p *Plan) Inexact() (inexact, blocks int64) {
	for _, c := range p.Casts {
		inexact, blocks = inexact+c.Inexact, blocks+c.Blocks
	}
	return inexact, blocks
}

// admitInexact returns an error if blocks without an exact cast must not be rounded.
func (p *Plan) admitInexact() error {
	inexact, blocks := p.Inexact()
	if inexact == 0 || p.casting.Requantize {
		return nil
	}
	for _, c := range p.Casts {
		if n := c.Reasons[lossless.NotNumber.String()]; n > 0 {
			return fmt.Errorf("%s: %d of %d blocks have a scale that is NaN, and no values: fetch the checkpoint again, or quantize the original "+
				"again; nothing was written", c.Weight, n, c.Blocks)
		}
	}
	i := slices.IndexFunc(p.Casts, func(c Cast) bool { return c.Inexact > 0 })
	c := p.Casts[i]
	return because(ErrInexact, fmt.Errorf("%d of %d blocks have no exact cast to %s, the first in %s, row %d, block %d: %s; nothing was "+
		"written", inexact, blocks, c.To, c.Weight, c.First[0].Row, c.First[0].Col, c.First[0].Why))
}
