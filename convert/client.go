package convert

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/quant"
)

// planForClient plans a quantization of m that the client o.Client loads: in the first of its conventions in
// which it reads every weight, else in the first one, without the weights that it cannot read.
func planForClient(m *checkpoint.Model, o QuantizeOptions) (*Plan, error) {
	c, err := client.Lookup(o.Client)
	if err != nil {
		return nil, err
	}
	f := o.Quantizer.Format
	storages, err := c.Stores(f)
	if err != nil {
		return nil, err
	}
	o.needsBF16 = c.NeedsBF16(f)
	var first *QuantizeOptions // the first that can be planned
	var failed error           // of the first that cannot
	for _, storage := range storages {
		attempt := o
		attempt.Convention, attempt.Scheme = storage.Convention.Name, cmp.Or(o.Scheme, schemeFor(storage, f, o.Calibration))
		plan, err := planQuantize(m, attempt)
		switch {
		case err != nil:
			failed = cmp.Or(failed, err)
		case len(c.Rejects(plan.planned())) == 0:
			return plan, nil
		case first == nil:
			first = &attempt
		}
	}
	if first == nil {
		return nil, failed
	}
	return planWithout(m, *first, c)
}

// schemeFor returns the first scheme of a storage that stores scales of activations if and only if the
// calibration has them; "" if there is none.
func schemeFor(s client.Storage, f quant.Format, calibration *Calibration) string {
	for _, name := range s.Schemes {
		only, err := s.Convention.With(f, name)
		if err != nil {
			continue
		}
		if _, a := only.Scheme(f); (a == checkpoint.Static) == (calibration != nil && calibration.inputs()) {
			return name
		}
	}
	return ""
}

// planWithout plans a quantization without the weights that the client cannot read, and those that it
// fuses with them. It returns an error if these are most of the bytes.
func planWithout(m *checkpoint.Model, o QuantizeOptions, c client.Client) (*Plan, error) {
	o.rejected = rejections{}
	var cause checkpoint.Problem // the first
	for {
		plan, err := planQuantize(m, o)
		if err != nil {
			return nil, errors.New(cause.String()) // no weight is left to quantize
		}
		problems := c.Rejects(plan.planned())
		if len(problems) > 0 {
			cause = cmp.Or(cause, problems[0])
			if !plan.reject(c, problems, o.rejected) {
				return nil, errors.New(cause.String())
			}
			continue
		}
		n, left, quantized := plan.rejectedBytes(o.rejected)
		if left > quantized {
			return nil, fmt.Errorf("%s (and %d more weights)", cause, n-1)
		}
		plan.Notes = append(plan.Notes, fmt.Sprintf("%d weights stay unquantized: %s", n, cause))
		return plan, nil
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
		if matrix, _ := p.source.Family().Joined(d.Name); d.action == quantized && matrices[matrix] {
			rejected[d.Name] = fmt.Sprintf("%s cannot read it in %s", c, p.Format)
		}
	}
	return len(rejected) > n
}

// rejectedBytes returns the number of rejected weights, their bytes in the source, and those of the
// quantized weights.
func (p *Plan) rejectedBytes(rejected rejections) (n int, left, bytes int64) {
	for _, d := range p.decisions {
		switch {
		case d.action == quantized:
			bytes += d.StoredBytes()
		case rejected.of(d.Weight) != "":
			n++
			left += d.StoredBytes()
		}
	}
	return n, left, bytes
}
