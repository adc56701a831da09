package serve

import (
	"context"
	"errors"

	"github.com/microscale-go/microscale/generation"
)

// errBusy is the error of a request that finds the queue full.
var errBusy = errors.New("the server is busy: its queue of requests is full")

// A pool lends contexts to requests. Requests that find none wait in a queue of limited length.
type pool struct {
	waiting chan struct{} // holds an element for each request that waits or runs
	running chan struct{} // holds an element for each request that runs
	idle    chan []*generation.Context
}

// newPool returns a pool of contexts and a queue of the given length.
func newPool(contexts []*generation.Context, queue int) *pool {
	p := &pool{
		waiting: make(chan struct{}, len(contexts)+queue),
		running: make(chan struct{}, len(contexts)),
		idle:    make(chan []*generation.Context, 1),
	}
	p.idle <- contexts
	return p
}

// enter takes a place of the queue, which leave returns.
func (p *pool) enter() error {
	select {
	case p.waiting <- struct{}{}:
		return nil
	default:
		return errBusy
	}
}

func (p *pool) leave() { <-p.waiting }

// take waits for a context, and returns the one that holds most of a prompt. The caller puts it
// back.
func (p *pool) take(ctx context.Context, prompt []int32) (*generation.Context, error) {
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	idle := <-p.idle
	best := 0
	for i, c := range idle {
		if c.Common(prompt) > idle[best].Common(prompt) {
			best = i
		}
	}
	c := idle[best]
	idle[best] = idle[len(idle)-1]
	p.idle <- idle[:len(idle)-1]
	return c, nil
}

func (p *pool) put(c *generation.Context) {
	p.idle <- append(<-p.idle, c)
	<-p.running
}
