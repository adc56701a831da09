package comm

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// A Transport moves messages between the ranks of a job. Messages of one tag between two ranks
// arrive in the order in which they were started. Methods may be called by several goroutines.
type Transport interface {
	Rank() int
	Size() int

	// Start begins to transfer messages. Their memory belongs to the transport until the result
	// is complete.
	Start(tag int, messages []Message) *Pending

	// Abort ends the job on all ranks because of an error of this one.
	Abort(err error)
}

// A Message is a transfer to or from one other rank.
type Message struct {
	Peer int  // rank in the transport
	Send bool // to the peer; otherwise from it
	Data []byte
}

// ErrAborted is the error of operations that were interrupted because another rank failed.
var ErrAborted = errors.New("the job was aborted")

// ErrTimeout is the error of operations that waited for other ranks longer than Options.Timeout.
var ErrTimeout = errors.New("no answer")

// Pending is the state of messages that were started. Transports report to it; Wait of the
// Request reads it.
type Pending struct {
	done chan struct{}
	err  error

	mu   sync.Mutex
	left map[int]int // messages by peer
}

// NewPending returns the state of messages of which none is complete.
func NewPending(messages []Message) *Pending {
	p := &Pending{done: make(chan struct{}), left: map[int]int{}}
	for _, m := range messages {
		p.left[m.Peer]++
	}
	if len(messages) == 0 {
		close(p.done)
	}
	return p
}

// Complete reports that one message to or from peer was transferred.
func (p *Pending) Complete(peer int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		return
	}
	if p.left[peer]--; p.left[peer] == 0 {
		delete(p.left, peer)
	}
	if len(p.left) == 0 {
		close(p.done)
	}
}

// Fail reports that the messages are not going to be transferred.
func (p *Pending) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		return
	}
	p.err = err
	clear(p.left)
	close(p.done)
}

// Missing returns the ranks with messages that are not complete.
func (p *Pending) Missing() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.left))
}

// traffic counts bytes by purpose.
type traffic struct {
	mu    sync.Mutex
	bytes map[string]int64
}

func (t *traffic) add(purpose string, n int64) {
	if purpose == "" || n == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes == nil {
		t.bytes = map[string]int64{}
	}
	t.bytes[purpose] += n
}

func (t *traffic) all() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.bytes)
}
