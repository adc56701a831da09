package decoder

import (
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A LatentPlan is attention whose keys and values come from one short vector per token (multi-head
// latent attention, DeepSeek-V2, 2024). A head of Q and K has elements that are rotated, which all heads
// of K share, and others.
type LatentPlan struct {
	QueryRank int `json:"query_rank,omitempty"` // of the latent queries; 0: queries are projected directly
	Rank      int `json:"rank"`                 // of the latent keys and values
	Plain     int `json:"plain"`                // elements of a head that are not rotated
	Rotated   int `json:"rotated"`
	Value     int `json:"value"` // elements of a head of V
}

// A latent computes the heads of Q, K and V for package nn. Heads have the rotated elements first, and
// those of V are padded with zeros to the size of the others.
//
//	Q = q_b(norm(q_a(x)))      [c r] = kv_a(x)      [K V] = kv_b(norm(c))      K gets r in each head
type latent struct {
	plan      *LatentPlan
	heads     int
	queryDown projection // without a query rank it has no module
	queryNorm *nn.RMSNorm
	queryUp   projection
	down      projection
	norm      *nn.RMSNorm
	up        projection
}

func newLatent(a AttentionPlan, hidden int, prefix string) *latent {
	p := a.Latent
	one := func(name string, in, out int, bias bool) projection {
		return newProjection(prefix, name, in, bias, []string{name}, out)
	}
	l := &latent{
		plan: p, heads: a.Heads,
		queryUp: one("self_attn.q_proj", hidden, a.Heads*a.HeadDim, false),
		down:    one("self_attn.kv_a_proj_with_mqa", hidden, p.Rank+p.Rotated, a.Bias),
		norm:    nn.NewRMSNorm(prefix+"self_attn.kv_a_layernorm", p.Rank, family.LatentEpsilon),
		up:      one("self_attn.kv_b_proj", p.Rank, a.Heads*(p.Plain+p.Value), false),
	}
	if p.QueryRank > 0 {
		l.queryDown = one("self_attn.q_a_proj", hidden, p.QueryRank, a.Bias)
		l.queryNorm = nn.NewRMSNorm(prefix+"self_attn.q_a_layernorm", p.QueryRank, family.LatentEpsilon)
		l.queryUp = one("self_attn.q_b_proj", p.QueryRank, a.Heads*a.HeadDim, false)
	}
	return l
}

func (l *latent) projections() []*projection {
	list := []*projection{&l.queryUp, &l.down, &l.up}
	if l.plan.QueryRank > 0 {
		list = append(list, &l.queryDown)
	}
	return list
}

func (l *latent) norms() []*nn.RMSNorm {
	if l.queryNorm == nil {
		return []*nn.RMSNorm{l.norm}
	}
	return []*nn.RMSNorm{l.queryNorm, l.norm}
}

// forward returns Q, K and V side by side.
func (l *latent) forward(s *nn.Scope, x tensor.Dense) (qkv tensor.Dense, err error) {
	q := x
	if l.plan.QueryRank > 0 {
		if q, _, err = l.queryDown.forward(s, q); err != nil {
			return qkv, err
		}
		if q, _, err = l.queryNorm.Forward(s, q); err != nil {
			return qkv, err
		}
	}
	if q, _, err = l.queryUp.forward(s, q); err != nil {
		return qkv, err
	}
	c, _, err := l.down.forward(s, x)
	if err != nil {
		return qkv, err
	}
	kv, _, err := l.norm.Forward(s, c.View(0, c.Rows, 0, l.plan.Rank))
	if err != nil {
		return qkv, err
	}
	if kv, _, err = l.up.forward(s, kv); err != nil {
		return qkv, err
	}
	qkv = tensor.New(x.Rows, 3*q.Cols)
	for i := range qkv.Rows {
		l.arrange(qkv.Row(i), q.Row(i), kv.Row(i), c.Row(i)[l.plan.Rank:])
	}
	return qkv, nil
}

// arrange sets a row of Q, K and V from the heads of q, those of kv and the rotated elements of K.
func (l *latent) arrange(out, q, kv, rotated []float32) {
	p := l.plan
	d := p.Plain + p.Rotated
	k, v := out[l.heads*d:], out[2*l.heads*d:]
	for h := range l.heads {
		head := q[h*d : (h+1)*d]
		copy(out[h*d:], head[p.Plain:])
		copy(out[h*d+p.Rotated:], head[:p.Plain])
		head = kv[h*(p.Plain+p.Value) : (h+1)*(p.Plain+p.Value)]
		copy(k[h*d:], rotated)
		copy(k[h*d+p.Rotated:], head[:p.Plain])
		copy(v[h*d:], head[p.Plain:])
	}
}

// compact returns the heads of attention's output without padding.
func (l *latent) compact(o tensor.Dense) tensor.Dense {
	d, value := l.plan.Plain+l.plan.Rotated, l.plan.Value
	y := tensor.New(o.Rows, l.heads*value)
	for i := range o.Rows {
		for h := range l.heads {
			copy(y.Row(i)[h*value:(h+1)*value], o.Row(i)[h*d:])
		}
	}
	return y
}
