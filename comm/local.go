package comm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Self returns the group of a job with one rank.
func Self() *Group { return New(newWorld(1).rank(0), Options{}) }

// Run calls f for each of n ranks, each in its own goroutine, and returns when all have returned.
// If f returns an error, panics or exits its goroutine on one rank, operations of the others end
// with ErrAborted, and Run returns the first error.
func Run(n int, o Options, f func(*Group) error) error {
	w := newWorld(n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			t := w.rank(i)
			returned := false
			defer func() {
				if v := recover(); v != nil {
					t.Abort(&RankError{i, fmt.Errorf("panic: %v\n%s", v, debug.Stack())})
				} else if !returned { // runtime.Goexit
					t.Abort(&RankError{i, errors.New("the goroutine exited")})
				}
			}()
			err := f(New(t, o))
			returned = true
			if err != nil {
				t.Abort(err)
			}
		})
	}
	all.Wait()
	return w.err
}

// A world is the memory that goroutine ranks share.
type world struct {
	size int

	mu       sync.Mutex
	channels map[channel]*queue
	err      error // of the rank that failed first
}

// A channel carries messages from one rank to another under a tag.
type channel struct{ from, to, tag int }

// A queue holds messages whose counterpart has not been started: sends or receives, never both.
type queue struct{ waiting []half }

// A half is one side of a transfer.
type half struct {
	Message
	pending *Pending
}

func newWorld(n int) *world { return &world{size: n, channels: map[channel]*queue{}} }

func (w *world) rank(i int) *localRank { return &localRank{w, i} }

// A localRank is the transport of one goroutine rank.
type localRank struct {
	*world
	index int
}

// Rank returns the rank of the goroutine.
func (r *localRank) Rank() int { return r.index }

// Size returns the number of ranks.
func (r *localRank) Size() int { return r.size }

// Start pairs each message with its counterpart if that was started before, and copies it then;
// otherwise the counterpart does.
func (r *localRank) Start(tag int, messages []Message) *Pending {
	p := NewPending(messages)
	for _, m := range messages {
		c := channel{r.index, m.Peer, tag}
		if !m.Send {
			c.from, c.to = m.Peer, r.index
		}
		own := half{m, p}
		other, ok, err := r.pair(c, own)
		switch {
		case err != nil:
			p.Fail(err)
			return p
		case ok:
			transfer(c, own, other)
		}
	}
	return p
}

// pair returns the first waiting counterpart of a message, or lets the message wait.
func (w *world) pair(c channel, own half) (other half, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return half{}, false, aborted(w.err)
	}
	q := w.channels[c]
	if q == nil {
		q = new(queue)
		w.channels[c] = q
	}
	if len(q.waiting) == 0 || q.waiting[0].Send == own.Send {
		q.waiting = append(q.waiting, own)
		return half{}, false, nil
	}
	other = q.waiting[0]
	q.waiting = q.waiting[1:]
	return other, true, nil
}

// transfer copies a message and reports to both sides.
func transfer(c channel, a, b half) {
	if b.Send {
		a, b = b, a
	}
	if len(a.Data) != len(b.Data) {
		err := fmt.Errorf("rank %d sends %d bytes, rank %d expects %d", c.from, len(a.Data), c.to, len(b.Data))
		a.pending.Fail(err)
		b.pending.Fail(err)
		return
	}
	copy(b.Data, a.Data)
	a.pending.Complete(a.Peer)
	b.pending.Complete(b.Peer)
}

// Abort ends all waiting operations.
func (r *localRank) Abort(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	for _, q := range r.channels {
		for _, h := range q.waiting {
			h.pending.Fail(aborted(r.err))
		}
		q.waiting = nil
	}
}

// aborted wraps the error of the rank that failed.
func aborted(err error) error {
	if errors.Is(err, ErrAborted) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAborted, err)
}
