package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// planForClient plans a quantization of m that the client o.Client loads: in the first of its conventions in
// which it reads every weight, else in the first in which it reads most, without the others. Of the schemes of a
// convention it is the one that quantizes most.
func planForClient(m *checkpoint.Model, o QuantizeOptions) (*Plan, error) {
	c, err := client.Lookup(o.Client)
	if err != nil {
		return nil, err
	}
	if o.Convention != "" {
		return nil, fmt.Errorf("client %s chooses the convention: omit the client, or convention %s", c, o.Convention)
	}
	formats := o.Formats()
	if len(formats) == 0 {
		return nil, errNoFormat
	}
	storages, err := c.StoresAll(formats...)
	if err != nil {
		return nil, err
	}
	o.needsBF16 = slices.ContainsFunc(formats, c.NeedsBF16)
	var first *Plan  // the first without some weights
	var failed error // of the first that cannot be planned
	for _, storage := range storages {
		plan, left, err := planStored(m, o, storage, c)
		switch {
		case err != nil:
			failed = cmp.Or(failed, err)
		case left == 0:
			return plan, nil
		case first == nil:
			first = plan
		}
	}
	if first == nil {
		return nil, failed
	}
	return first, nil
}

// PlanRelabelFor is PlanRelabel to the first convention in which a client reads every weight. It returns an
// error if there is none.
func PlanRelabelFor(ctx context.Context, source *hf.Checkpoint, name, scheme string, calibration *Calibration) (*Plan, error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := sound(m); err != nil {
		return nil, err
	}
	return relabelFor(m, name, scheme, m.Formats(), func(c *checkpoint.Convention, scheme string) (*Plan, error) {
		return planRelabelTo(m, c, scheme, calibration)
	})
}

// relabelFor returns the plan in the first convention and scheme in which a client reads every weight. formats are those of
// the result.
func relabelFor(m *checkpoint.Model, name, scheme string, formats []quant.Format,
	plan func(c *checkpoint.Convention, scheme string) (*Plan, error)) (*Plan, error) {
	c, err := client.Lookup(name)
	if err != nil {
		return nil, err
	}
	path := m.Source.Path
	storages, err := c.StoresAll(formats...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; to change the format, quantize the original for %s", path, err, c)
	}
	var failed error // of the first
	for _, storage := range storages {
		schemes := append([]string{""}, storage.Schemes...) // "": that of the source, which the client may not read
		if scheme != "" {
			schemes = []string{scheme}
		}
		for _, scheme := range schemes {
			p, err := plan(storage.Convention, scheme)
			if err == nil {
				err = p.rejectedBy(c)
			}
			if err == nil {
				return p, nil
			}
			failed = cmp.Or(failed, fmt.Errorf("%s: convention %s: %w", path, storage.Convention, err))
		}
	}
	return nil, failed
}

// rejectedBy returns an error if a client rejects or misreads the result of a conversion to another convention.
func (p *Plan) rejectedBy(c client.Client) error {
	if problems := c.Rejects(p.planned()); len(problems) > 0 {
		return errors.New(problems[0].String())
	}
	if n := p.unreadGlobals(); n > 0 {
		return fmt.Errorf("%d weights have a global scale, which %s does not read: quantize the original for it", n, c)
	}
	return nil
}

// planStored is planWithout in the scheme of a storage that quantizes most bytes, the first of equals.
func planStored(m *checkpoint.Model, o QuantizeOptions, s client.Storage, c client.Client) (best *Plan, left int, err error) {
	o.Convention = s.Convention.Name
	schemes := []string{o.Scheme}
	if o.Scheme == "" {
		schemes = schemesFor(s.Convention, c.Schemes(s.Convention, o.Quantizer.Format), o.Quantizer.Format, o.Calibration)
	}
	o.Rules = slices.Clone(o.Rules)
	for i, r := range o.Rules {
		f := r.Quantizer.Format
		if r.Keeps() || f.Name == o.Quantizer.Format.Name {
			continue // it has the scheme of the weights without a rule
		}
		name, err := o.schemeOf(f)
		if err != nil {
			return nil, 0, err
		}
		o.Rules[i].Scheme = cmp.Or(name, schemesFor(s.Convention, c.Schemes(s.Convention, f), f, o.Calibration)[0])
	}
	most, failed := int64(-1), error(nil) // of the first that cannot be planned
	for _, o.Scheme = range schemes {
		plan, without, err := planWithout(m, o, c)
		if err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		if _, _, bytes := plan.left(); bytes > most {
			best, left, most = plan, without, bytes
		}
	}
	if best == nil {
		return nil, 0, failed
	}
	return best, left, nil
}

// schemesFor returns those of some schemes of a convention that store scales of activations if and only if the
// calibration has them; if there are none, the name of no scheme.
func schemesFor(convention *checkpoint.Convention, schemes []string, f quant.Format, calibration *Calibration) (names []string) {
	for _, name := range schemes {
		only, err := convention.With(f, name)
		if err != nil {
			continue
		}
		if _, a := only.Scheme(f); (a == checkpoint.Static) == (calibration != nil && calibration.inputs()) {
			names = append(names, name)
		}
	}
	if names == nil {
		return []string{""}
	}
	return names
}

// planWithout plans a quantization without the weights that the client cannot read, and those that it
// fuses with them. It returns the number of them and of the experts that the convention does not support, and
// an error if these are most of the bytes.
func planWithout(m *checkpoint.Model, o QuantizeOptions, c client.Client) (plan *Plan, left int, err error) {
	o.rejected = rejections{}
	var cause checkpoint.Problem // the first
	for {
		plan, err := planQuantize(m, o)
		switch {
		case errors.Is(err, errNothing) && cause.Text != "":
			return nil, 0, errors.New(cause.String())
		case err != nil && cause.Text != "":
			return nil, 0, fmt.Errorf("%s; without it, %w", cause, err)
		case err != nil:
			return nil, 0, err
		}
		if problems := c.Rejects(plan.planned()); len(problems) > 0 {
			cause = cmp.Or(cause, problems[0])
			if !plan.reject(c, problems, o.rejected) {
				return nil, 0, errors.New(cause.String())
			}
			continue
		}
		rejected, experts, quantized := plan.left()
		switch {
		case rejected.bytes+experts.bytes <= quantized:
		case cause.Text != "":
			return nil, 0, fmt.Errorf("%s (and %d more weights)", cause, rejected.n-1)
		default:
			return nil, 0, fmt.Errorf("%s: most of the model would stay unquantized for %s: %s; %s", experts.first.Name, c, experts.first.reason,
				experts.first.adviceExperts())
		}
		if rejected.n > 0 {
			plan.Notes = append(plan.Notes, fmt.Sprintf("%d weights stay unquantized: %s", rejected.n, cause))
		}
		return plan, rejected.n + experts.n, nil
	}
}

// reject adds the quantized weights with problems, and those that are fused with them, to rejected. It
// reports whether there are any.
func (p *Plan) reject(c client.Client, problems []checkpoint.Problem, rejected rejections) bool {
	matrices := map[string]bool{}
	for _, problem := range problems {
		matrix, _ := p.source.Family().Joined(problem.Tensor)
		matrices[matrix] = true
	}
	n := len(rejected)
	for _, d := range p.decisions {
		if matrix, _ := p.source.Family().Joined(d.Name); d.action == Quantize && matrices[matrix] {
			rejected[d.Name] = fmt.Sprintf("%s cannot read it in %s", c, p.formatOf(d))
		}
	}
	return len(rejected) > n
}

// stays counts weights that stay unquantized.
type stays struct {
	n     int
	bytes int64 // in the source
	first *decision
}

func (s *stays) add(d *decision) {
	if s.first == nil {
		s.first = d
	}
	s.n++
	s.bytes += d.StoredBytes()
}

// left returns the rejected weights, the experts in one tensor that stay unquantized for another reason than
// a choice of the user, and the bytes of the quantized weights in the source.
func (p *Plan) left() (byClient, experts stays, bytes int64) {
	for i := range p.decisions {
		switch d := &p.decisions[i]; {
		case d.action == Quantize:
			bytes += d.StoredBytes()
		case d.reason.cause == causeClient:
			byClient.add(d)
		case d.leftExperts():
			experts.add(d)
		}
	}
	return byClient, experts, bytes
}

// leftExperts reports whether the weight holds the experts of a layer, and is not quantized although nobody
// excluded it.
func (d *decision) leftExperts() bool {
	return d.ExpertModules() != nil && d.reason.cause != noCause && d.reason.cause != causeUser
}

// adviceExperts returns how the experts in the weight can be quantized.
func (d *decision) adviceExperts() string {
	if d.ExpertsBiased() {
		return "convention gpt-oss supports them in mxfp4, convention plain in every format"
	}
	return "store each expert in separate tensors to quantize them"
}
