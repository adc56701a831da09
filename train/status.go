package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/comm"
)

// A status is the report of a rank to the others after the backward pass of a step.
type status struct {
	losses      []float64 // of its microbatches, as backward returns them
	nonFinite   bool      // its gradients have NaN or Inf
	interrupted bool
	err         error
}

// Flags of a status as bytes.
const (
	statusNonFinite = 1 << iota
	statusInterrupted
)

// marshal returns the flags, the number of losses, the losses and the error.
func (s *status) marshal() []byte {
	var flags byte
	if s.nonFinite {
		flags |= statusNonFinite
	}
	if s.interrupted {
		flags |= statusInterrupted
	}
	b := binary.LittleEndian.AppendUint32([]byte{flags}, uint32(len(s.losses)))
	for _, l := range s.losses {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(l))
	}
	return append(b, comm.EncodeError(s.err)...)
}

// unmarshalStatus returns the status of rank.
func unmarshalStatus(b []byte, rank int) (s status) {
	s.nonFinite, s.interrupted = b[0]&statusNonFinite != 0, b[0]&statusInterrupted != 0
	n := int(binary.LittleEndian.Uint32(b[1:]))
	b = b[5:]
	for range n {
		s.losses = append(s.losses, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		b = b[8:]
	}
	if len(b) > 0 {
		s.err = &comm.RankError{Rank: rank, Err: comm.DecodeError(b)}
	}
	return s
}

// exchange returns the status of all ranks together: the losses in the order of the microbatches.
// The error of a rank is returned by that rank; the others return one that wraps comm.ErrAborted.
func (r *run) exchange(ctx context.Context, own status) (all status, err error) {
	own.interrupted = ctx.Err() != nil
	if r.Parallel.ranks() == 1 {
		return own, own.err
	}
	texts, err := r.Parallel.group(trafficControl).GatherAll(own.marshal())
	if err != nil {
		return all, err
	}
	for rank, text := range texts {
		s := unmarshalStatus(text, rank)
		switch {
		case s.err != nil && rank == r.Parallel.rank():
			return all, own.err
		case s.err != nil:
			return all, fmt.Errorf("%w: %w", comm.ErrAborted, s.err)
		}
		all.losses = append(all.losses, s.losses...)
		all.nonFinite = all.nonFinite || s.nonFinite
		all.interrupted = all.interrupted || s.interrupted
	}
	return all, nil
}

// mean returns the mean of the losses, added in order.
func (s *status) mean() float64 {
	var sum float64
	for _, l := range s.losses {
		sum += l
	}
	return sum / float64(len(s.losses))
}
