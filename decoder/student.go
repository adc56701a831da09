package decoder

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Student is a quantized model whose scales, and norms, are trained to give the logits of its original. Codes, embedding and
// unquantized weights stay. Each layer is recomputed before its backward pass, so that one layer's activations and one
// matrix of values are in memory, besides codes, scales and the inputs of layers.
type Student struct {
	model *Model
}

// Student returns a student with the weights of m, and copies of its scales and norms. m was loaded with LoadOptions.Inference, or is
// the result of Quantize. A model without a backward pass, or with a quantized embedding that is also the head, is an error that
// matches errors.ErrUnsupported.
func (m *Model) Student() (*Student, error) {
	if err := m.plan.Trainable(); err != nil {
		return nil, err
	}
	c := *m
	c.Options.Recompute = true
	c.pool, c.arena = new(nn.Pool), new(nn.Arena)
	if c.embedding.Stored == nil {
		table, err := quant.Quantizer{Format: quant.F32}.Rowwise(c.embedding.Weight.Value, quant.With{})
		if err != nil {
			return nil, err
		}
		c.embedding = &nn.Embedding{Name: embeddingModule, Stored: table}
	}
	c.layers = make([]*layer, len(m.layers))
	for i, l := range m.layers {
		l = l.clone()
		l.inputNorm, l.postNorm = copyNorm(l.inputNorm), copyNorm(l.postNorm) // there are no others: see forwardOnly
		c.layers[i] = l
	}
	c.norm = copyNorm(m.norm)
	for _, p := range c.projections() {
		if err := p.scale(); err != nil {
			return nil, err
		}
	}
	if m.plan.Tied && c.head.scaled.Weight.Format.Scaled() {
		return nil, family.Unsupported(errors.New("the embedding is quantized, and is the head too"))
	}
	return &Student{&c}, nil
}

// copyNorm returns a norm with weights of its own.
func copyNorm(n *nn.RMSNorm) *nn.RMSNorm {
	c := nn.NewRMSNorm(n.Name, n.Weight.Value.Cols, n.Epsilon)
	c.Weight.Name = n.Weight.Name
	copy(c.Weight.Value.Data, n.Weight.Value.Data)
	return c
}

// scale makes a projection one whose scales are trained.
func (p *projection) scale() (err error) {
	var w *quant.Tensor
	var bias []float32
	if p.linear != nil { // unquantized
		if p.linear.Bias != nil {
			bias = p.linear.Bias.Value.Data
		}
		w, err = quant.Quantizer{Format: quant.BF16}.Rowwise(p.linear.Weight.Value, quant.With{})
	} else {
		bias = p.frozen.bias
		w, err = p.frozen.joined()
	}
	if err != nil {
		return err
	}
	p.scaled, p.linear, p.frozen = &nn.ScaledLinear{Name: p.name, Weight: w, Bias: bias}, nil, nil
	return p.scaled.Check()
}

// joined returns the weights of all parts in one matrix, with scales of its own.
func (f *frozen) joined() (*quant.Tensor, error) {
	first := f.parts[0].tensor()
	if len(f.parts) == 1 {
		copied := *first
		copied.Scales = slices.Clone(first.Scales)
		return &copied, nil
	}
	rows := 0
	for _, p := range f.parts {
		t := p.tensor()
		if t.Format.Name != first.Format.Name || t.Global != first.Global {
			return nil, fmt.Errorf("%s: its parts have different formats or global scales", f.name)
		}
		rows += t.Rows()
	}
	joined, err := quant.NewTensor(first.Format, rows, first.Cols())
	if err != nil {
		return nil, err
	}
	joined.Global, rows = first.Global, 0
	for _, p := range f.parts {
		t := p.tensor()
		to := joined.ViewRows(rows, rows+t.Rows())
		copy(to.Codes, t.Codes)
		copy(to.Scales, t.Scales)
		rows += t.Rows()
	}
	return joined, nil
}

// Layers returns the linear layers whose scales are trained, in the order of the computation.
func (s *Student) Layers() (list []*nn.ScaledLinear) {
	for _, p := range s.model.projections() {
		if p.scaled.Weight.Format.Scaled() {
			list = append(list, p.scaled)
		}
	}
	return list
}

// Norms returns the weights of the norms.
func (s *Student) Norms() []*nn.Param { return s.model.Params() }

// StudentRows is the number of rows of logits of both models that a Student computes at a time.
const StudentRows = 128

// Divergence returns the divergence of the logits of a student from those of its original for each token, in nats. Unless
// scope.Inference is set, it adds the gradients of the mean to those of scales and norms. The recipe of scope is bf16, or f32.
func (s *Student) Divergence(scope nn.Scope, original *Model, tokens []int32) (kl []float64, err error) {
	m := s.model
	teaching := scope
	teaching.Inference = true
	t := original.scopes(teaching)
	t.setArena(original.arena)
	want, _, err := original.forward(t, tokens, 1)
	if err != nil {
		return nil, fmt.Errorf("original: %w", err)
	}
	p := m.scopes(scope)
	p.setArena(m.arena)
	x, saved, err := m.forward(p, tokens, 1)
	if err != nil {
		return nil, err
	}
	d := tensor.New(x.Rows, x.Cols)
	x = x.Clone()
	for from := 0; from < x.Rows; from += StudentRows {
		to := min(from+StudentRows, x.Rows)
		head := p.exempt
		head.Arena = nil
		logits, kept, err := m.head.forward(&head, x.View(from, to, 0, x.Cols))
		if err != nil {
			return nil, err
		}
		teacher := t.exempt
		teacher.Arena = nil
		right, err := original.headLogits(&teacher, want.View(from, to, 0, want.Cols))
		if err != nil {
			return nil, fmt.Errorf("original: %w", err)
		}
		part, err := nn.Divergence(&head, logits, right, 1/float32(len(tokens)))
		if err != nil {
			return nil, err
		}
		kl = append(kl, part...)
		if scope.Inference {
			continue
		}
		dx, err := m.head.backward(&head, kept, logits)
		if err != nil {
			return nil, err
		}
		for i := range dx.Rows {
			copy(d.Row(from+i), dx.Row(i))
		}
	}
	if scope.Inference {
		return kl, nil
	}
	return kl, m.backward(p, saved, d)
}

// Rescaled returns the bytes of the tensors of the checkpoint that hold the scales of the student and, with norms, the weights of
// its norms, by their names.
func (s *Student) Rescaled(norms bool) (map[string][]byte, error) {
	all, source := map[string][]byte{}, s.model.source
	for _, p := range s.model.projections() {
		w := p.scaled.Weight
		if !w.Format.Scaled() {
			continue
		}
		row := 0
		for _, q := range p.parts {
			name, _ := q.weight(p.in)
			stored, ok := source.Lookup(source.Family().Stored(name))
			if !ok {
				return nil, fmt.Errorf("tensor %s is missing", name)
			}
			parts, err := stored.Rescaled(w.ViewRows(row, row+q.out))
			if err != nil {
				return nil, err
			}
			maps.Copy(all, parts)
			row += q.out
		}
	}
	if !norms {
		return all, nil
	}
	for _, p := range s.Norms() {
		stored, ok := source.Lookup(source.Family().Stored(p.Name))
		if !ok {
			return nil, fmt.Errorf("tensor %s is missing", p.Name)
		}
		f, ok := stored.Dtype.Dense()
		if !ok {
			return nil, fmt.Errorf("tensor %s: unsupported dtype %s", p.Name, stored.Dtype)
		}
		data := make([]byte, len(p.Value.Data)*f.Bits()/8)
		if err := tensor.ToBytes(data, p.Value.Data, f); err != nil {
			return nil, err
		}
		all[stored.Name] = data
	}
	return all, nil
}
