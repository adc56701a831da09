package decoder

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// experts are the feed-forward networks of a layer of which each token takes some:
//
//	y = Σ weight(e)·expert(e, x) over the chosen experts e      + shared(x), multiplied by σ(gate·x) if there is a gate
type experts struct {
	plan       *ExpertsPlan
	router     projection
	correction *nn.Param // 1 × experts, added to the scores for the choice alone; nil: none
	each       []mlp
	shared     *mlp // takes all tokens; nil: none
	sharedGate projection
}

func newExperts(p *Plan, plan *LayerPlan, prefix string) *experts {
	n, e := p.names, plan.Experts
	x := &experts{plan: e, router: newProjection(prefix, n.Router, p.Hidden, e.Bias, []string{n.Router}, e.Count)}
	if n.Correction != "" {
		x.correction = newVector(prefix+n.Correction, e.Count)
	}
	for i := range e.Count {
		module := fmt.Sprintf("%s.%d.", n.Experts, i)
		if n.Stacked {
			x.each = append(x.each, mlp{
				gateUp: newStacked(prefix, module+"gate_up_proj", n.Experts+"."+family.GateUpExperts, p.Hidden, 2*plan.MLP.Width, plan.MLP.Bias, i,
					e.Count),
				unit: newUnit(plan.MLP, prefix+module+"act"),
				down: newStacked(prefix, module+"down_proj", n.Experts+"."+family.DownExperts, plan.MLP.Width, p.Hidden, plan.MLP.Bias, i, e.Count),
			})
			continue
		}
		gateUp := []string{module + n.ExpertParts[0], module + n.ExpertParts[1]}
		x.each = append(x.each, newMLP(plan.MLP, p.Hidden, prefix, module+"gate_up_proj", gateUp, module+n.ExpertParts[2]))
	}
	if n.Shared != "" {
		wide := plan.MLP
		wide.Width = e.Shared
		shared := newMLP(wide, p.Hidden, prefix, n.Shared+".gate_up_proj", []string{n.Shared + ".gate_proj", n.Shared + ".up_proj"},
			n.Shared+".down_proj")
		x.shared = &shared
	}
	if n.SharedGate != "" {
		x.sharedGate = newProjection(prefix, n.SharedGate, p.Hidden, false, []string{n.SharedGate}, 1)
	}
	return x
}

func (x *experts) projections() (list []*projection) {
	for i := range x.each {
		list = append(list, &x.each[i].gateUp, &x.each[i].down)
	}
	if x.shared != nil {
		list = append(list, &x.shared.gateUp, &x.shared.down)
	}
	return list
}

// routers returns the linear layers that choose and weigh experts, which recipes do not quantize.
func (x *experts) routers() []*projection {
	if x.sharedGate.in > 0 {
		return []*projection{&x.router, &x.sharedGate}
	}
	return []*projection{&x.router}
}

func (x *experts) params() (list []*nn.Param) {
	for _, p := range append(x.routers(), x.projections()...) {
		list = append(list, p.params()...)
	}
	if x.correction != nil {
		list = append(list, x.correction)
	}
	return list
}

// An assignment is a token of an expert.
type assignment struct {
	token  int
	weight float32
}

// forward returns the output for each token. It adds experts in their order, so that the result does
// not depend on threads.
func (x *experts) forward(s *nn.Scope, h tensor.Dense) (tensor.Dense, error) {
	y := tensor.New(h.Rows, h.Cols)
	assigned, err := x.assign(s, h)
	if err != nil {
		return y, err
	}
	for e, tokens := range assigned {
		if len(tokens) == 0 {
			continue
		}
		in := tensor.New(len(tokens), h.Cols)
		for i, a := range tokens {
			copy(in.Row(i), h.Row(a.token))
		}
		out, err := x.each[e].forward(s, in, nil)
		if err != nil {
			return y, err
		}
		for i, a := range tokens {
			sum := y.Row(a.token)
			for j, v := range out.Row(i) {
				sum[j] += float32(a.weight * v)
			}
		}
	}
	s.Round(y)
	return y, x.addShared(s, y, h)
}

// addShared adds the output of the shared expert to y.
func (x *experts) addShared(s *nn.Scope, y, h tensor.Dense) error {
	if x.shared == nil {
		return nil
	}
	out, err := x.shared.forward(s, h, nil)
	if err != nil {
		return err
	}
	if x.sharedGate.in > 0 {
		gate, _, err := x.sharedGate.forward(s, h)
		if err != nil {
			return err
		}
		for i := range out.Rows {
			weight := float32(1 / (1 + math.Exp(-float64(gate.Row(i)[0]))))
			row := out.Row(i)
			for j := range row {
				row[j] *= weight
			}
		}
	}
	return nn.Add(s, y, y, out)
}

// assign returns the tokens of each expert.
func (x *experts) assign(s *nn.Scope, h tensor.Dense) ([][]assignment, error) {
	exempt := s.Disabled()
	logits, _, err := x.router.forward(&exempt, h)
	if err != nil {
		return nil, err
	}
	assigned := make([][]assignment, x.plan.Count)
	for token := range h.Rows {
		row := logits.Row(token)
		for _, v := range row {
			if v != v {
				return nil, fmt.Errorf("%s: the score of an expert for token %d is NaN", x.router.name, token)
			}
		}
		chosen, weights := x.choose(row)
		for i, e := range chosen {
			assigned[e] = append(assigned[e], assignment{token, weights[i]})
		}
	}
	return assigned, nil
}

// choose returns the experts for a row of logits, and their weights.
func (x *experts) choose(logits []float32) (chosen []int, weights []float32) {
	p, scores := x.plan, make([]float64, len(logits))
	for i, v := range logits {
		scores[i] = float64(v)
	}
	switch p.Score {
	case family.ScoreSoftmax:
		softmax(scores)
	case family.ScoreSigmoid:
		for i, v := range scores {
			scores[i] = 1 / (1 + math.Exp(-v))
		}
	}
	chosen = largest(x.candidates(scores), p.Chosen)
	values := make([]float64, len(chosen))
	for i, e := range chosen {
		values[i] = scores[e]
	}
	if p.Score == family.ScoreChosen {
		softmax(values)
	}
	sum := 1.0
	if p.Normalize {
		sum = 0
		for _, v := range values {
			sum += v
		}
	}
	for _, v := range values {
		weights = append(weights, float32(v/sum*p.Scale))
	}
	return chosen, weights
}

// candidates returns the scores for the choice: with the correction, and −∞ for experts outside of the
// best groups. The value of a group is the sum of its two best scores.
func (x *experts) candidates(scores []float64) []float64 {
	p := x.plan
	if x.correction == nil {
		return scores
	}
	scores = slices.Clone(scores)
	for i, c := range x.correction.Value.Row(0) {
		scores[i] += float64(c)
	}
	if p.Groups <= 1 {
		return scores
	}
	size, groups := p.Count/p.Groups, make([]float64, p.Groups)
	for g := range groups {
		members := scores[g*size : (g+1)*size]
		for _, i := range largest(members, 2) {
			groups[g] += members[i]
		}
	}
	best := largest(groups, p.FromGroups)
	for i := range scores {
		if !slices.Contains(best, i/size) {
			scores[i] = math.Inf(-1)
		}
	}
	return scores
}

// largest returns the indices of the n largest values, in descending order; of equal ones the first.
func largest(values []float64, n int) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:min(n, len(order))]
}

func softmax(x []float64) {
	top, sum := slices.Max(x), 0.0
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}
