package serve

import (
	"context"
	"sync"
	"time"

	"github.com/microscale-go/microscale/generation"
)

const (
	mostTogether = 8                // answers of one pass: the most rows that the kernels for few rows support
	gatherTime   = time.Millisecond // to wait for answers that are about to ask for their next pass
)

// A batch collects answers that wait for a pass over one token. The goroutine that has the turn
// computes one pass for all of them.
type batch struct {
	mutex   sync.Mutex
	waiting []*ticket
	active  map[*generation.Answer]bool // answers that asked before and have not ended
	arrived chan struct{}               // holds an element after a ticket was added
	wait    time.Duration               // of gather
}

// A ticket is an answer that waits for a pass.
type ticket struct {
	answer *generation.Answer
	done   chan generation.Step // holds the result
}

func newBatch() *batch {
	return &batch{active: map[*generation.Answer]bool{}, arrived: make(chan struct{}, 1), wait: gatherTime}
}

// add queues an answer.
func (b *batch) add(a *generation.Answer) *ticket {
	t := &ticket{a, make(chan generation.Step, 1)}
	b.mutex.Lock()
	b.waiting = append(b.waiting, t)
	b.active[a] = true
	b.mutex.Unlock()
	select {
	case b.arrived <- struct{}{}:
	default: // the channel reports another arrival
	}
	return t
}

// withdraw removes a ticket, and reports whether it still waited.
func (b *batch) withdraw(t *ticket) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for i, other := range b.waiting {
		if other == t {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// leave forgets an answer that needs no further pass.
func (b *batch) leave(a *generation.Answer) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.active, a)
}

// gather returns the tickets of the next pass. It waits a little for active answers that are between
// two passes, because they would need a separate pass.
func (b *batch) gather() []*ticket {
	late := time.NewTimer(b.wait)
	defer late.Stop()
	for waits := true; ; {
		b.mutex.Lock()
		if n := len(b.waiting); !waits || n >= min(len(b.active), mostTogether) {
			taken := b.waiting[:min(n, mostTogether)]
			b.waiting = append([]*ticket(nil), b.waiting[len(taken):]...)
			b.mutex.Unlock()
			return taken
		}
		b.mutex.Unlock()
		select {
		case <-b.arrived:
		case <-late.C:
			waits = false
		}
	}
}

// step computes the next pass of an answer: alone if it is a part of a prompt, otherwise together with
// other answers that wait.
func (s *Server) step(ctx context.Context, a *generation.Answer) (p generation.Part, err error) {
	if !a.Single() {
		if err := s.begin(ctx); err != nil {
			return p, err
		}
		defer s.end()
		return a.Step(ctx)
	}
	t := s.batch.add(a)
	for {
		select {
		case step := <-t.done:
			return step.Part, step.Err
		case s.turn <- struct{}{}:
			s.compute(t)
		case <-ctx.Done():
			if s.batch.withdraw(t) {
				return p, ctx.Err()
			}
			step := <-t.done // its pass runs
			return step.Part, step.Err
		}
	}
}

// compute ends a turn with one pass of the answers that wait, unless own had its pass in another turn.
func (s *Server) compute(own *ticket) {
	defer s.end()
	if len(own.done) > 0 {
		return
	}
	tickets := s.batch.gather()
	s.passes++
	answers := make([]*generation.Answer, len(tickets))
	for i, t := range tickets {
		answers[i] = t.answer
	}
	steps := s.model.StepEach(context.Background(), answers)
	for i, t := range tickets {
		t.done <- steps[i]
	}
}
