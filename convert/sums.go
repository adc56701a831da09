package convert

import (
	"slices"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// sums are the errors and checksums of a weight or a tile: the error of the stored values and,
// if scales are searched, the error without the search.
type sums struct {
	stored, nearest *measure.Accumulator

	written []uint64 // contributions to the checksums of the stored tensors; see checksum.Sum
	read    uint64   // contribution to the checksum of the values in the source

	damping float64 // the largest of the factors of GPTQ; 0: none
}

func newSums() sums {
	return sums{stored: measure.New(checkpoint.BlockLength), nearest: measure.New(checkpoint.BlockLength)}
}

// merge adds the errors and checksums of a tile.
func (s *sums) merge(o sums) {
	s.stored.Merge(o.stored)
	if o.nearest != nil {
		s.nearest.Merge(o.nearest)
	}
	s.addSums(o)
	s.damping = max(s.damping, o.damping)
}

// addSums adds the checksums of a tile.
func (s *sums) addSums(o sums) {
	if s.written == nil {
		s.written = make([]uint64, len(o.written))
	}
	for i, sum := range o.written {
		s.written[i] ^= sum
	}
	s.read ^= o.read
}

// restore sets s to the state in a journal. It returns false if that is damaged.
func (s *sums) restore(d *doneTiles) bool {
	s.written, s.read, s.damping = slices.Clone(d.Written), d.Read, d.Damping
	return s.stored.UnmarshalBinary(d.Sums) == nil && (d.Nearest == nil || s.nearest.UnmarshalBinary(d.Nearest) == nil)
}

// report sets the errors of a weight.
func (s *sums) report(t *verify.Tensor) {
	t.Result = s.stored.Result()
	if nearest := s.nearest.Result(); nearest.Elements > 0 {
		t.Nearest = nearest
	}
}

// stateOf returns the state of an accumulator.
func stateOf(a *measure.Accumulator) []byte {
	state, err := a.MarshalBinary()
	if err != nil {
		panic(err) // numbers of fixed size
	}
	return state
}

// searches reports whether the run searches the scales of a weight by the errors of its elements, so that those show what the
// search gains. Methods with statistics may increase them.
func (r *run) searches(decision int) bool {
	d := r.plan.decisions[decision]
	return d.action == Quantize && d.quantizer.Search != quant.NoSearch && r.plan.method == calibration.Nearest
}

// nearest returns a quantizer without the search of scales.
func nearest(q quant.Quantizer) quant.Quantizer {
	q.Search, q.TopScale = quant.NoSearch, 0
	return q
}
