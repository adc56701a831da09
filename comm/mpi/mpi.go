//go:build (linux || darwin) && (amd64 || arm64) && !nompi

package mpi

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/comm"
)

// A Transport connects this process with the others of its job.
type Transport struct {
	lib        *library
	rank, size int
	batches    chan batch
	abort      chan struct{}
	end        chan struct{}
	ended      chan error
	watch      *watch      // nil: only the launcher notices that a process ends
	lostRank   atomic.Bool // lost was called with an error
	aborting   atomic.Bool
}

// A batch holds the arguments of a call of Start.
type batch struct {
	tag      int32
	messages []comm.Message
	pending  *comm.Pending
}

// Connect joins the job of the launcher. file names the MPI library; if it is empty, Connect loads
// that of the launcher. A process may connect once. timeout limits the time that MPI_Init waits for
// the other processes; 0: no limit.
//
// Connect returns an error if the library cannot be loaded or initialized. It also returns an error if
// the library's job and the launcher's have different sizes: then the two belong to different MPIs. Rank 0
// returns the error at once. Print it and call Launcher.End, which ends the other ranks before they return it.
func Connect(file string, timeout time.Duration) (*Transport, error) {
	l := FindLauncher()
	t, err := connect(file, l, timeout)
	if err != nil {
		l.waitTurn()
	}
	return t, err
}

func connect(file string, l Launcher, timeout time.Duration) (*Transport, error) {
	lib, err := load(file, l)
	if err != nil {
		return nil, err
	}
	t := &Transport{lib: lib, batches: make(chan batch, 1024), abort: make(chan struct{}, 1), end: make(chan struct{}),
		ended: make(chan error, 1)}
	ready := make(chan error, 1)
	go t.own(ready)
	var expired <-chan time.Time
	if timeout > 0 {
		expired = time.After(timeout)
	}
	select {
	case err = <-ready:
	case <-expired:
		return nil, fmt.Errorf("join MPI job: MPI_Init of rank %d: %w from the other processes within %v", l.Rank, comm.ErrTimeout, timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("join MPI job: %w", err)
	}
	if err := l.checkSize(t.size, lib.name); err != nil {
		close(t.end)
		if failed := <-t.ended; failed != nil {
			err = fmt.Errorf("%w; %w", err, failed)
		}
		return nil, err
	}
	return t, nil
}

// Rank returns the rank of this process.
func (t *Transport) Rank() int { return t.rank }

// Size returns the number of processes of the job.
func (t *Transport) Size() int { return t.size }

// Library returns the name of the MPI library.
func (t *Transport) Library() string { return t.lib.name }

// Start begins to transfer messages.
func (t *Transport) Start(tag int, messages []comm.Message) *comm.Pending {
	p := comm.NewPending(messages)
	t.batches <- batch{int32(tag), messages, p}
	return p
}

// Watch ends this process when that of another rank is killed or crashes. Every rank calls it once.
// timeout limits how long it waits for the other ranks, apart from the time of the connections; 0: no limit.
// All ranks return an error that matches ErrUnwatched if one cannot connect: then only the launcher, or
// the timeout of a transfer, ends the job.
func (t *Transport) Watch(timeout time.Duration) (err error) {
	if timeout > 0 {
		timeout += 3 * connectTime // more than newWatch needs
	}
	if t.watch, err = newWatch(comm.New(t, comm.Options{Timeout: timeout}), ":0"); err == nil {
		t.watch.start(t.lost)
	}
	return err
}

// lost ends this process because another has ended. err is nil if a rank has printed the reason.
// Otherwise the first rank prints err and ends the job; the others wait for their turn.
func (t *Transport) lost(err error) {
	if err == nil {
		if t.aborting.Swap(true) {
			return
		}
		t.watch.leave(failed)
		time.Sleep(Turn)
		os.Exit(1)
	}
	t.lostRank.Store(true)
	time.Sleep(time.Duration(min(max(t.rank-1, 0), 3)) * Turn)
	time.Sleep(messageTime) // another rank, or the launcher, may be ending this process
	t.printAndAbort(err)
}

// abortGrace is how long MPI_Abort may take to end this process.
const abortGrace = 2 * time.Second

// Abort prints err to standard error and ends the job: the launcher ends all of its processes.
// It prints nothing if another rank has printed the reason, or if a rank was lost: then err is a
// consequence, and lost ends the job. It does not return.
func (t *Transport) Abort(err error) {
	time.Sleep(messageTime) // another rank, or the launcher, may be ending this process
	if t.lostRank.Load() {
		select {}
	}
	t.printAndAbort(err)
}

func (t *Transport) printAndAbort(err error) {
	if t.aborting.Swap(true) {
		select {} // until another goroutine has ended the process
	}
	if own := (*comm.RankError)(nil); !errors.As(err, &own) || own.Rank != t.rank {
		err = &comm.RankError{Rank: t.rank, Err: err}
	}
	fmt.Fprintf(os.Stderr, "microscale: %v\n", err)
	t.watch.leave(failed)
	time.Sleep(messageTime)
	t.abort <- struct{}{}
	time.Sleep(abortGrace)
	os.Exit(1)
}

// Exit leaves MPI and ends this process. All ranks call it when they have nothing more to
// transfer. It ends the process by the exit function of the C library, from which MPI libraries
// disconnect from their launcher.
func (t *Transport) Exit(code int) {
	close(t.end)
	if err := <-t.ended; err != nil {
		fmt.Fprintf(os.Stderr, "microscale: rank %d: %v\n", t.rank, err)
		code = max(code, 1)
	}
	t.watch.leave(completed)
	t.lib.exit(int32(code))
	select {}
}

// own makes all calls of MPI, from one thread.
func (t *Transport) own(ready chan<- error) {
	runtime.LockOSThread()
	err := t.initialize()
	ready <- err
	if err != nil {
		return
	}
	o := owner{Transport: t}
	idle := 0
	for {
		switch {
		case len(o.active) == 0:
			select {
			case b := <-t.batches:
				o.post(b)
			case <-t.abort:
				t.lib.abort(t.lib.world, 1)
				return
			case <-t.end:
				t.ended <- t.lib.check("MPI_Finalize", t.lib.finalize())
				return
			}
		default:
			select {
			case b := <-t.batches:
				o.post(b)
			case <-t.abort:
				t.lib.abort(t.lib.world, 1)
				return
			default:
			}
		}
		if o.progress() {
			idle = 0
		} else {
			idle++
			pause(idle)
		}
	}
}

// pause yields the processor to other goroutines, and after 200 idle calls to other processes, such as
// other ranks. It is short, because MPI makes progress only during its calls.
func pause(idle int) {
	if idle < 200 {
		runtime.Gosched()
		return
	}
	time.Sleep(20 * time.Microsecond)
}

func (t *Transport) initialize() error {
	var provided, rank, size int32
	lib := t.lib
	if err := lib.check("MPI_Init_thread", lib.initThread(nil, nil, lib.threadsFunnelled, &provided)); err != nil {
		return err
	}
	for _, step := range []struct {
		function string
		call     func() int32
	}{
		{"MPI_Comm_set_errhandler", func() int32 { return lib.setErrorHandler(lib.world, lib.returnErrors) }},
		{"MPI_Comm_rank", func() int32 { return lib.commRank(lib.world, &rank) }},
		{"MPI_Comm_size", func() int32 { return lib.commSize(lib.world, &size) }},
	} {
		if err := lib.check(step.function, step.call()); err != nil {
			return err
		}
	}
	if provided < lib.threadsFunnelled {
		return fmt.Errorf("%s does not support a process with threads", lib.name)
	}
	t.rank, t.size = int(rank), int(size)
	return nil
}

// segmentBytes is the maximum size of one transfer by MPI. Libraries are slower with larger messages.
const segmentBytes = 2 << 20

// An owner is the state of the goroutine that calls MPI.
type owner struct {
	*Transport
	active []*segment
	free   []*segment
}

// A segment is part of a message that MPI transfers.
type segment struct {
	request uintptr
	status  [statusBytes]byte
	data    []byte
	send    bool
	left    *int // segments of its message that are not complete
	peer    int
	pending *comm.Pending
	pin     runtime.Pinner
}

// post starts the segments of all messages, receives first.
func (o *owner) post(b batch) {
	for _, send := range []bool{false, true} {
		for _, m := range b.messages {
			if m.Send != send {
				continue
			}
			left := (len(m.Data) + segmentBytes - 1) / segmentBytes
			for data := range slices.Chunk(m.Data, segmentBytes) {
				if err := o.start(b, m, data, &left); err != nil {
					b.pending.Fail(err)
					return
				}
			}
		}
	}
}

func (o *owner) start(b batch, m comm.Message, data []byte, left *int) error {
	p := new(segment)
	if n := len(o.free); n > 0 {
		p, o.free = o.free[n-1], o.free[:n-1]
	}
	p.request, p.data, p.send, p.left, p.peer, p.pending = 0, data, m.Send, left, m.Peer, b.pending
	p.pin.Pin(&data[0])
	p.pin.Pin(p)
	call, name := o.lib.irecv, "MPI_Irecv"
	if m.Send {
		call, name = o.lib.isend, "MPI_Isend"
	}
	if err := o.lib.check(name, call(unsafe.Pointer(&data[0]), int32(len(data)), o.lib.bytes, int32(m.Peer), b.tag, o.lib.world,
		&p.request)); err != nil {
		p.pin.Unpin()
		return err
	}
	o.active = append(o.active, p)
	return nil
}

// progress tests all active segments, and reports whether one is complete.
func (o *owner) progress() bool {
	left := o.active[:0]
	for _, p := range o.active {
		var done int32
		err := o.lib.check("MPI_Test", o.lib.test(&p.request, &done, unsafe.Pointer(&p.status)))
		if err == nil && done == 0 {
			left = append(left, p)
			continue
		}
		if err == nil && !p.send {
			err = o.checkCount(p)
		}
		p.pin.Unpin()
		*p.left--
		switch {
		case err != nil:
			p.pending.Fail(err)
		case *p.left == 0: // MPI completes segments in any order
			p.pending.Complete(p.peer)
		}
		p.data, p.pending, p.left = nil, nil, nil
		o.free = append(o.free, p)
	}
	any := len(left) < len(o.active)
	clear(o.active[len(left):])
	o.active = left
	return any
}

// checkCount returns an error if a message was shorter than its memory.
func (o *owner) checkCount(p *segment) error {
	var n int32
	if err := o.lib.check("MPI_Get_count", o.lib.getCount(unsafe.Pointer(&p.status), o.lib.bytes, &n)); err != nil {
		return err
	}
	if int(n) != len(p.data) {
		return fmt.Errorf("rank %d sends %d bytes, rank %d expects %d", p.peer, n, o.rank, len(p.data))
	}
	return nil
}
