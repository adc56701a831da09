package convert

import (
	"fmt"
	"sync"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// useStatistics gives every weight to quantize the statistics of its input. It returns an error if some have
// none, as no weight is quantized by a lesser method than the one asked for.
func (p *Plan) useStatistics(o QuantizeOptions) error {
	if p.method = o.Method; p.method == calibration.Nearest {
		return nil
	}
	if o.Statistics == nil {
		return fmt.Errorf("method %s needs statistics of the inputs", p.method)
	}
	var missing []string
	for i, d := range p.decisions {
		if d.action != Quantize {
			continue
		}
		inputs, err := p.inputsOf(d, o.Statistics)
		if err != nil {
			return err
		}
		if inputs == nil {
			missing = append(missing, d.Name)
		}
		p.decisions[i].inputs = inputs
	}
	if len(missing) > 0 {
		return fmt.Errorf("the statistics have no input of %s (%d of %d weights): collect them with this model and a longer text, or exclude "+
			"these weights", missing[0], len(missing), p.Count(Quantize))
	}
	p.statistics = o.Statistics.Identity()
	p.noteFewTokens()
	return nil
}

// inputsOf returns the inputs of a weight, one of each expert that it holds; nil if one is missing.
func (p *Plan) inputsOf(d decision, s *calibration.Statistics) (inputs []*calibration.Input, err error) {
	_, cols := d.Matrix()
	for _, module := range layerModules(d.Weight) {
		in, ok := s.Of(module)
		if !ok {
			return nil, nil
		}
		if in.Width() != cols {
			return nil, fmt.Errorf("%s: it has %d columns, and the statistics are of an input of %d: they are of another model", d.Name, cols,
				in.Width())
		}
		if p.method == calibration.Solve && !in.HasHessian() {
			return nil, fmt.Errorf("method %s needs the products of the columns of each input, which the statistics lack: "+
				"collect them with calibrate --hessian, or choose --method %s", p.method, calibration.Search)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

// layerModules returns a module for each input of a weight: one, or one of each expert that it holds.
func layerModules(w *checkpoint.Weight) (modules []string) {
	for e := 0; len(w.Shape) == 3 && e < int(w.Shape[0]); e++ {
		if expert := w.ExpertModule(e); expert != nil {
			modules = append(modules, expert[0]) // the others have the same input
		}
	}
	if modules == nil {
		return []string{module(w.Name)}
	}
	return modules
}

// noteFewTokens adds a note if experts have few tokens of their own.
func (p *Plan) noteFewTokens() {
	experts, few, none := map[*calibration.Input]bool{}, 0, 0
	for _, d := range p.decisions {
		for _, in := range d.inputs {
			if !in.IsExpert() || experts[in] {
				continue
			}
			experts[in] = true
			switch {
			case in.Tokens == 0:
				none++
			case in.Tokens < int64(in.Width()):
				few++
			}
		}
	}
	if few+none > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("of %d inputs of experts, %d had no token and %d fewer than columns: these lean on all tokens "+
			"of their layer; calibrate on a longer text",
			len(experts), none, few))
	}
}

// inputRows returns the number of rows of a weight that have the same input; 0: all.
func (d decision) inputRows() int {
	if len(d.inputs) < 2 {
		return 0
	}
	return int(d.Shape[1])
}

// input returns the input of a tile, whose rows share one; nil without statistics.
func (d decision) input(t checkpoint.Tile) *calibration.Input {
	switch n := d.inputRows(); {
	case d.inputs == nil:
		return nil
	case n == 0:
		return d.inputs[0]
	default:
		return d.inputs[t.From/n]
	}
}

// methodName returns the method that chose scales and codes, or that of the relabeled source; "" for nearest.
func (p *Plan) methodName() string {
	switch {
	case p.method != calibration.Nearest:
		return p.method.String()
	case p.Count(Relabel) > 0:
		return p.source.Method()
	}
	return ""
}

// factors are those of the inputs whose weights are being quantized.
type factors struct {
	lock  sync.Mutex
	known []*inputFactor // the most recent last
}

// An inputFactor is the factor of an input, once it is made.
type inputFactor struct {
	input *calibration.Input
	make  func() (*calibration.Factor, error)
}

// heldFactors is the number of factors that are held at once: q, k and v have one, with o between them.
const heldFactors = 2

// of returns the factor of an input.
func (f *factors) of(in *calibration.Input) (*calibration.Factor, error) {
	f.lock.Lock()
	var one *inputFactor
	for i, k := range f.known {
		if k.input == in {
			one, f.known = k, append(f.known[:i], f.known[i+1:]...)
			break
		}
	}
	if one == nil {
		one = &inputFactor{in, sync.OnceValues(func() (*calibration.Factor, error) {
			h, err := in.Hessian()
			if err != nil {
				return nil, err
			}
			return calibration.NewFactor(h, in.Width())
		})}
	}
	f.known = append(f.known, one)
	if len(f.known) > heldFactors {
		f.known = f.known[1:]
	}
	f.lock.Unlock()
	factor, err := one.make()
	if err != nil {
		return nil, fmt.Errorf("the input of %s: %w", in.Modules[0], err)
	}
	return factor, nil
}

// rounded quantizes the values of a tile, raw or x, with q, by the method of the plan.
func (b *batch) rounded(t checkpoint.Tile, q quant.Quantizer, raw tensor.BF16, x tensor.Dense, with quant.With) (err error) {
	switch {
	case b.run.plan.method == calibration.Solve && q == b.run.plan.Quantizer:
		if b.d.readsBF16() {
			x = raw.Dense()
		}
		var f *calibration.Factor
		if f, err = b.run.factors.of(b.d.input(t)); err == nil {
			_, err = calibration.GPTQ(q, x, with, f)
		}
	case b.d.readsBF16():
		_, err = q.RowwiseBF16(raw, with)
	default:
		_, err = q.Rowwise(x, with)
	}
	return err
}

// importance returns the weights of the errors of the columns of a tile; nil without statistics.
func (d decision) importance(t checkpoint.Tile) []float32 {
	in := d.input(t)
	if in == nil {
		return nil
	}
	return in.Square[t.FromCol:t.ToCol]
}
