package decoder

import (
	"fmt"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// part returns the plan of one of n ranks: of all heads, columns of feed-forward layers and tokens,
// its part.
func (p *Plan) part(n int) *Plan {
	q := *p
	q.Vocabulary /= n
	q.Layers = append([]LayerPlan(nil), p.Layers...)
	for i := range q.Layers {
		l := &q.Layers[i]
		l.Attention.Heads /= n
		l.Attention.KVHeads /= n
		l.MLP.Width /= n
	}
	return &q
}

// divide makes the modules of m the parts that this rank has. It is the only place that chooses them.
func (m *Model) divide() error {
	rank, size := m.Options.Ranks.Rank(), m.Options.Ranks.Size()
	if size == 1 {
		return nil
	}
	m.embedding.Divide(rank, size)
	if err := m.head.linear.Divide(nn.SplitOutputs, rank, size); err != nil {
		return err
	}
	for _, l := range m.layers {
		for p, by := range map[*projection]nn.Split{
			&l.qkv: nn.SplitOutputs, &l.output: nn.SplitInputs, &l.mlp.gateUp: nn.SplitOutputs, &l.mlp.down: nn.SplitInputs,
		} {
			if err := p.linear.Divide(by, rank, size); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// wholeLogits returns the logits of the whole vocabulary for those of this rank.
func (m *Model) wholeLogits(part tensor.Dense) (tensor.Dense, error) {
	ranks := m.Options.Ranks
	if ranks.Size() == 1 {
		return part, nil
	}
	all, err := ranks.Group.For("").GatherAll(memory.Bytes(part.Data))
	if err != nil {
		return part, err
	}
	whole := tensor.New(part.Rows, part.Cols*ranks.Size())
	values := tensor.New(part.Rows, part.Cols)
	for rank, data := range all {
		copy(memory.Bytes(values.Data), data)
		for i := range part.Rows {
			copy(whole.Row(i)[rank*part.Cols:], values.Row(i))
		}
	}
	return whole, nil
}

// Whole returns the model of which the ranks have parts, with the values of all of them. Every rank
// calls it.
func (m *Model) Whole() (*Model, error) {
	ranks := m.Options.Ranks
	if ranks.Size() == 1 {
		return m, nil
	}
	o := m.Options
	o.Ranks = nn.Ranks{}
	whole, err := newTrainable(m.Config, o)
	if err != nil {
		return nil, err
	}
	to := whole.Params()
	for i, p := range m.Params() {
		if err := gatherParam(ranks.Group.For(""), to[i].Value, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	whole.Inference = m.Inference
	return whole, whole.SetState(m.State())
}

// gatherParam sets whole to the values of the parts of a parameter that ranks have.
func gatherParam(g *comm.Group, whole tensor.Dense, p *nn.Param) error {
	if p.Place == (nn.Place{}) {
		for i := range whole.Rows {
			copy(whole.Row(i), p.Value.Row(i))
		}
		return nil
	}
	part := p.Value.Clone()
	all, err := g.GatherAll(memory.Bytes(part.Data))
	if err != nil {
		return err
	}
	for rank, data := range all {
		copy(memory.Bytes(part.Data), data)
		row, col := 0, 0
		if p.Place.Cols != part.Cols {
			col = rank * part.Cols
		} else {
			row = rank * part.Rows
		}
		for i := range part.Rows {
			copy(whole.Row(row + i)[col:], part.Row(i))
		}
	}
	return nil
}
