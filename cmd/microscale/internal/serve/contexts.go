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

// begin waits until a request may run, which end ends.
func (p *pool) begin(ctx context.Context) error {
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil { // both were possible
		p.end()
		return err
	}
	return nil
}

func (p *pool) end() { <-p.running }

// take returns the context that holds most of a prompt to a running request, which puts it back.
func (p *pool) take(prompt []int32) *generation.Context {
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
	return c
}

func (p *pool) put(c *generation.Context) { p.idle <- append(<-p.idle, c) }
