package train

import (
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A span is rows or columns [From, To) of a parameter.
type span struct{ From, To int }

// len returns the number of rows or columns.
func (s span) len() int { return s.To - s.From }

// and returns the intersection of two spans.
func (s span) and(t span) span {
	from := max(s.From, t.From)
	return span{from, max(from, min(s.To, t.To))}
}

// place returns the rows and columns of parameter i that this rank optimizes, in the whole.
func (r *run) place(i int) (rows, columns span) {
	p := r.params[i]
	at := p.Located()
	return span{at.Row + r.spans[i].From, at.Row + r.spans[i].To}, span{at.Col, at.Col + p.Grad.Cols}
}

// A shard is a linear layer whose quantized weight is gathered from the ranks that optimize its
// rows.
type shard struct {
	linear *nn.Linear
	params []int        // its parts, in the order of the rows
	cuts   []int        // of the rows of the whole weight, by rank
	own    tensor.Dense // master weights of this rank's rows
}

// rows returns the number of rows of a rank.
func (s *shard) rows(rank int) int { return s.cuts[rank+1] - s.cuts[rank] }

// divide returns where the rows of each parameter begin on each rank, and the linear layers whose
// quantized weights are gathered. Their rows are divided at whole blocks, over all parts; other
// parameters at any row. A vector belongs to the last rank.
func (r *run) divide() (cuts [][]int, shards []*shard) {
	n := r.data.ranks()
	cuts = make([][]int, len(r.params))
	index := map[*nn.Param]int{}
	for i, p := range r.params {
		cuts[i], index[p] = comm.Cut(p.Grad.Rows, n, 1), i
	}
	rows, ok := r.Recipe.ShardRows()
	if !ok || !r.gathersQuantized() {
		return cuts, nil
	}
	for _, l := range r.model.Linears() {
		s := &shard{linear: l, cuts: comm.Cut(l.Weight.Value.Rows, n, rows)}
		first := 0
		for _, p := range l.Params() {
			i, size := index[p], p.Value.Rows
			for rank, c := range s.cuts {
				cuts[i][rank] = min(max(c-first, 0), size)
			}
			s.params = append(s.params, i)
			first += size
		}
		shards = append(shards, s)
	}
	return cuts, shards
}

// gathersQuantized reports whether quantized weights are gathered after a step.
func (r *run) gathersQuantized() bool {
	return r.HoldQuantized && r.data.distributed()
}

// takeShare sets own to the rows of the parameters that this rank optimizes: all of them without the
// distributed optimizer. Of shards, it copies the rows of the master weights, and frees the others.
func (r *run) takeShare(cuts [][]int, shards []*shard) {
	r.own, r.spans = r.params, make([]span, len(r.params))
	for i, p := range r.params {
		r.spans[i] = span{0, p.Grad.Rows}
	}
	if !r.data.distributed() {
		return
	}
	rank := r.data.rank()
	r.own = make([]*nn.Param, len(r.params))
	for i, p := range r.params {
		s := span{cuts[i][rank], cuts[i][rank+1]}
		r.spans[i] = s
		r.own[i] = &nn.Param{Name: p.Name, Value: p.Value.View(s.From, s.To, 0, p.Value.Cols), Grad: p.Grad.View(s.From, s.To, 0, p.Grad.Cols)}
	}
	for _, s := range shards {
		w := s.linear.Weight.Value
		s.own = w.View(s.cuts[rank], s.cuts[rank+1], 0, w.Cols).Clone()
		row := 0
		for _, i := range s.params {
			o := r.own[i]
			o.Value = s.own.View(row, row+o.Grad.Rows, 0, w.Cols)
			row += o.Grad.Rows
		}
		s.linear.ReleaseMasters()
	}
}

// unsharded returns the parameters that are not part of a shard.
func (r *run) unsharded() (list []int) {
	sharded := map[int]bool{}
	for _, s := range r.shards {
		for _, i := range s.params {
			sharded[i] = true
		}
	}
	for i := range r.params {
		if !sharded[i] {
			list = append(list, i)
		}
	}
	return list
}
