// Package comm moves data between the ranks of a job.
//
// A Group is an ordered set of ranks that communicate: all ranks of the job, or a part of them
// after Split. Its operations are those of MPI and of torch.distributed: AllToAll, AllGather,
// Broadcast, Barrier, and the sums ReduceScatter and AllReduce. Every rank of a group calls the
// same operations in the same order.
//
// A Transport moves bytes and does nothing else. There are three: a single process (Self),
// goroutines of one process (Run), and MPI (package comm/mpi). Results do not depend on the
// transport.
//
// Package comm computes sums itself, without the transport. Every rank adds one part of the values: it
// receives this part from the other ranks, adds in float32 in the order of a fixed binary tree (see
// Sum), and sends the sums to all. So a sum depends only on the number of ranks and their values, and the
// values may travel in any Wire format, block-scaled formats included.
//
// Any error is fatal for the job: an operation that failed on one rank leaves the others waiting
// until the transport is aborted.
package comm

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A Group is a set of ranks that communicate. One goroutine calls the operations of a group. Several
// operations may be under way; every rank starts them in the same order. Different groups may be used
// concurrently.
type Group struct {
	name    string
	rank    int   // in the group
	members []int // ranks of the transport, by rank in the group
	job     *job
	tag     int
	purpose string
	threads int // goroutines that encode, decode and add
}

// A job is the state that the groups of one rank share.
type job struct {
	transport Transport
	timeout   time.Duration
	nextTag   atomic.Int64
	traffic   traffic
	buffers   buffers
}

// Options configure a job. The zero value waits without a limit.
type Options struct {
	// Timeout limits how long an operation waits for other ranks; 0: no limit. An operation that
	// exceeds it returns an error that names the ranks it waits for.
	Timeout time.Duration
}

// New returns the group of all ranks of a transport.
func New(t Transport, o Options) *Group {
	g := &Group{name: "world", rank: t.Rank(), threads: 1, job: &job{transport: t, timeout: o.Timeout}}
	g.job.nextTag.Store(1)
	for i := range t.Size() {
		g.members = append(g.members, i)
	}
	return g
}

// Rank returns the rank of the caller in the group, from 0.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks in the group.
func (g *Group) Size() int { return len(g.members) }

// String names the group and its ranks in the job.
func (g *Group) String() string {
	return fmt.Sprintf("%s%v", g.name, g.members)
}

// For returns a copy of the group. Traffic counts the bytes of its operations under purpose.
func (g *Group) For(purpose string) *Group {
	h := *g
	h.purpose = purpose
	return &h
}

// Threads returns a copy of the group, whose operations use n goroutines to encode, decode and add
// values (0: one per processor). New uses one.
func (g *Group) Threads(n int) *Group {
	h := *g
	h.threads = n
	return &h
}

// Split divides the group: ranks that pass the same color form a group, in the order of their
// ranks. All ranks of g call it. name is used in errors. A rank splits one group at a time.
func (g *Group) Split(name string, color int) (*Group, error) {
	all, err := g.For("").gatherPairs(int64(color), g.job.nextTag.Load())
	if err != nil {
		return nil, err
	}
	h := &Group{name: name, job: g.job, purpose: g.purpose, threads: g.threads}
	for rank, colorTag := range all {
		// Two groups may share a tag only if no pair of ranks is in both. Every rank of g takes
		// a tag that none of them has used.
		h.tag = max(h.tag, int(colorTag[1]))
		if colorTag[0] == int64(color) {
			if rank == g.rank {
				h.rank = len(h.members)
			}
			h.members = append(h.members, g.members[rank])
		}
	}
	g.job.nextTag.Store(int64(h.tag) + 1)
	if h.tag > maxTag {
		return nil, fmt.Errorf("split %s: more than %d groups", g, maxTag)
	}
	return h, nil
}

// maxTag is the largest tag that every MPI library supports.
const maxTag = 32767

// Traffic returns the bytes that this rank has sent to other ranks, by the purpose that
// Group.For set. Messages of a rank to itself are not counted.
func (g *Group) Traffic() map[string]int64 { return g.job.traffic.all() }

// Abort ends the job on all ranks because of err.
func (g *Group) Abort(err error) { g.job.transport.Abort(err) }

// AllToAll sends src[i] to rank i, and receives from rank i into dst[i]. The lengths must agree
// on both sides.
func (g *Group) AllToAll(dst, src [][]byte) error { return g.StartAllToAll(dst, src).Wait() }

// StartAllToAll is AllToAll without waiting. The memory belongs to the operation until
// Request.Wait returns.
func (g *Group) StartAllToAll(dst, src [][]byte) *Request {
	if len(dst) != g.Size() || len(src) != g.Size() {
		return failed(fmt.Errorf("all-to-all in %s: got %d destinations and %d sources, want %d", g, len(dst), len(src), g.Size()))
	}
	return g.exchange("all-to-all", dst, src)
}

// AllGather receives the src of rank i into dst[i], on every rank.
func (g *Group) AllGather(dst [][]byte, src []byte) error { return g.StartAllGather(dst, src).Wait() }

// StartAllGather is AllGather without waiting. The memory belongs to the operation until
// Request.Wait returns. dst[g.Rank()] may be src itself.
func (g *Group) StartAllGather(dst [][]byte, src []byte) *Request {
	if len(dst) != g.Size() {
		return failed(fmt.Errorf("all-gather in %s: got %d destinations, want %d", g, len(dst), g.Size()))
	}
	return g.exchange("all-gather", dst, slices.Repeat([][]byte{src}, g.Size()))
}

// Broadcast copies x of rank root to x of every rank.
func (g *Group) Broadcast(x []byte, root int) error {
	if root < 0 || root >= g.Size() {
		return fmt.Errorf("broadcast in %s: no rank %d", g, root)
	}
	send, receive := make([][]byte, g.Size()), make([][]byte, g.Size())
	receive[root] = x
	if g.rank == root {
		for i := range send {
			send[i] = x
		}
	}
	return g.exchange("broadcast", receive, send).Wait()
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier() error {
	send, receive := make([][]byte, g.Size()), make([][]byte, g.Size())
	for i := range send {
		send[i], receive[i] = []byte{0}, []byte{0}
	}
	return g.For("").exchange("barrier", receive, send).Wait()
}

// exchange starts the transfer of src[i] to rank i and of dst[i] from it.
func (g *Group) exchange(operation string, dst, src [][]byte) *Request {
	if len(dst[g.rank]) != len(src[g.rank]) {
		return failed(fmt.Errorf("%s in %s: rank %d sends %d bytes to itself and receives %d",
			operation, g, g.rank, len(src[g.rank]), len(dst[g.rank])))
	}
	copy(dst[g.rank], src[g.rank])
	var messages []Message
	for i := range g.members {
		if i != g.rank {
			messages = append(messages, Message{Peer: i, Data: dst[i]}, Message{Peer: i, Send: true, Data: src[i]})
		}
	}
	return g.start(operation, messages)
}

// start starts messages to and from ranks of the group. Empty messages are not transferred.
func (g *Group) start(operation string, messages []Message) *Request {
	messages = slices.DeleteFunc(messages, func(m Message) bool { return len(m.Data) == 0 })
	var sent int64
	for i, m := range messages {
		messages[i].Peer = g.members[m.Peer]
		if m.Send {
			sent += int64(len(m.Data))
		}
	}
	g.job.traffic.add(g.purpose, sent)
	if len(messages) == 0 {
		return &Request{}
	}
	return &Request{group: g, operation: operation, pending: g.job.transport.Start(g.tag, messages)}
}

// A Request is an operation that was started. Its memory may be used again after Wait.
type Request struct {
	group     *Group
	operation string
	pending   *Pending // nil: nothing to wait for
	err       error
	then      func() error // runs once in Wait
}

func failed(err error) *Request { return &Request{err: err} }

// Wait blocks until the operation is complete on this rank.
func (r *Request) Wait() error {
	if r.err == nil && r.pending != nil {
		r.err = r.wait()
		r.pending = nil
	}
	if then := r.then; r.err == nil && then != nil {
		r.then = nil
		r.err = then()
	}
	return r.err
}

func (r *Request) wait() error {
	g := r.group
	var expired <-chan time.Time
	if g.job.timeout > 0 {
		timer := time.NewTimer(g.job.timeout)
		defer timer.Stop()
		expired = timer.C
	}
	what := r.operation
	if g.purpose != "" {
		what += " of " + g.purpose
	}
	select {
	case <-r.pending.done:
	case <-expired:
		select {
		case <-r.pending.done: // select takes either if both are ready
			return r.outcome(what)
		default:
		}
		var missing []string
		for _, rank := range r.pending.Missing() {
			missing = append(missing, fmt.Sprint(rank))
		}
		return g.fault(fmt.Errorf("%s in %s: %w from rank %s within %v", what, g, ErrTimeout, strings.Join(missing, ", "), g.job.timeout))
	}
	return r.outcome(what)
}

// outcome returns the error of an operation that has ended. what is its name.
func (r *Request) outcome(what string) error {
	if r.pending.err != nil {
		return r.group.fault(fmt.Errorf("%s in %s: %w", what, r.group, r.pending.err))
	}
	return nil
}

// fault returns err as an error of this rank.
func (g *Group) fault(err error) error { return &RankError{g.members[g.rank], err} }

// andThen makes Wait call f when r is complete, after the functions of earlier calls of andThen.
func (r *Request) andThen(f func() error) *Request {
	first := r.then
	r.then = func() error {
		if first != nil {
			if err := first(); err != nil {
				return err
			}
		}
		return f()
	}
	return r
}
