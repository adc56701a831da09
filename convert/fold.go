package convert

import (
	"context"
	"fmt"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A fold is what the elements of a weight are multiplied by.
type fold struct {
	rows, columns []float32 // powers of two; nil: 1
	plusOne       bool      // the weight is stored as its difference from one
}

// apply multiplies the elements of a tile.
func (f *fold) apply(t checkpoint.Tile, x tensor.Dense) {
	for i := range x.Rows {
		for j, v := range x.Row(i) {
			if f.plusOne {
				v++
			}
			if f.rows != nil {
				v *= f.rows[t.From+i]
			}
			if f.columns != nil {
				v *= f.columns[t.FromCol+j]
			}
			if f.plusOne {
				v--
			}
			x.Row(i)[j] = v
		}
	}
}

// PlanFold plans a copy of a checkpoint that is not quantized, which computes the same and loses less when q quantizes it: factors of the
// columns of inputs, by the statistics of the inputs, move from norms and from the rows of up to the layers after them
// (calibration.Fold). It reads these layers. folded has, for each input that has factors, what its columns are divided by, by the first
// module that reads it, as calibration.Statistics.WriteFolded takes it. It returns an error if the checkpoint is quantized or not of a
// family whose computation is known, if the statistics lack an input, or when ctx ends.
func PlanFold(ctx context.Context, source *hf.Checkpoint, s *calibration.Statistics, q quant.Quantizer, threads int) (p *Plan,
	folded map[string][]float32, err error) {
	m, err := read(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	if m.Quantized() > 0 || len(m.Decoded) > 0 {
		return nil, nil, fmt.Errorf("%s: fold: it is quantized: fold the model that it was quantized from", source.Path)
	}
	f, settings, err := family.Read(source.Config)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: fold: %w", source.Path, err)
	}
	if q, err = calibration.Search.Quantizer(q); err != nil {
		return nil, nil, err
	}
	folds := map[string]*fold{}
	folded = map[string][]float32{}
	of := func(name string) *fold {
		if folds[name] == nil {
			folds[name] = &fold{}
		}
		return folds[name]
	}
	for _, one := range f.Folds(settings) {
		in, powers, err := foldOf(ctx, m, s, q, one, threads)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: fold: %w", source.Path, err)
		}
		if powers == nil {
			continue
		}
		folded[in.Modules[0]] = powers
		inverse := make([]float32, len(powers))
		for j, t := range powers {
			inverse[j] = 1 / t
		}
		for _, r := range one.Readers {
			of(m.Family().Stored(r)).columns = powers
		}
		if one.Norm != "" {
			*of(m.Family().Stored(one.Norm)) = fold{columns: inverse, plusOne: one.PlusOne}
		} else {
			of(m.Family().Stored(one.Producer)).rows = inverse
		}
	}
	p = newPlan(m, nil, quant.Quantizer{})
	for _, w := range m.Weights {
		d := decision{Weight: w, fold: folds[w.Name]}
		if d.fold != nil {
			d.action, d.stored = Decode, []checkpoint.Stored{{Spec: w.DenseSpec(w.Dtype)}}
		}
		p.add(d)
	}
	if err := p.layout(nil); err != nil {
		return nil, nil, err
	}
	return p, folded, p.configure(func(config []byte) ([]byte, error) { return config, nil })
}

// foldOf returns the input of a fold and its powers; nil if it gains nothing.
func foldOf(ctx context.Context, m *checkpoint.Model, s *calibration.Statistics, q quant.Quantizer, one family.Fold, threads int) (
	in *calibration.Input, powers []float32, err error) {
	stored := func(name string) (string, *checkpoint.Weight, error) {
		name = m.Family().Stored(name)
		w, ok := m.Lookup(name)
		if !ok {
			return name, nil, fmt.Errorf("it has no %s", name)
		}
		return name, w, nil
	}
	if _, _, err := stored(one.Norm + one.Producer); err != nil { // one of them is ""
		return nil, nil, err
	}
	var weights []tensor.Dense
	for _, reader := range one.Readers {
		name, w, err := stored(reader)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, nil, err
		}
		read, ok := s.Of(module(name))
		if !ok {
			return nil, nil, fmt.Errorf("the statistics have no input of %s: collect them with this model", name)
		}
		if in != nil && in != read {
			return nil, nil, fmt.Errorf("the statistics have another input of %s than of %s: collect them with this model", name, in.Modules[0])
		}
		in = read
		rows, cols := w.Matrix()
		if in.Width() != cols {
			return nil, nil, fmt.Errorf("%s: it has %d columns, and the statistics are of an input of %d: they are of another model", name, cols,
				in.Width())
		}
		x, err := w.ReadTile(checkpoint.Tile{To: rows, ToCol: cols})
		if err != nil {
			return nil, nil, err
		}
		weights = append(weights, x)
	}
	powers, gain, err := calibration.Fold(q, weights, in.Square, threads)
	if gain == 1 {
		powers = nil
	}
	return in, powers, err
}
