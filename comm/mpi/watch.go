package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/microscale-go/microscale/comm"
)

// A watch notices that the process of another rank has ended or is stopped. Some launchers do not: after
// a rank was killed, Slurm's srun with PMI-2 lets the others wait for it.
//
// Every rank has a TCP connection to rank 0, over which both send a byte every second. The kernel closes
// it when a process ends, whatever the reason. A rank that ends on purpose sends another byte first. A
// rank whose connection ends without that byte was killed or has crashed; one that sends nothing for
// some seconds is stopped, or its host cannot be reached. Rank 0 tells the others.
type watch struct {
	peers     map[int]net.Conn // by rank: rank 0 has all others, the others have rank 0
	processes []string         // descriptions, by rank
	beat      time.Duration    // between the bytes of a rank that runs
	left      atomic.Bool      // leave was called
	readers   sync.WaitGroup   // of start
}

// The bytes that a rank sends: the last one is not running.
const (
	running   = 'r'
	completed = 'c' // its work is complete
	failed    = 'f' // it has printed an error, or was told so
)

// beats is the number of bytes in turn that may be missing. A rank that is stopped ends its job within 10
// seconds.
const beats = 8

// errSilent is the error of a connection over which no byte arrives.
var errSilent = errors.New("it is stopped, or its host cannot be reached")

// ErrUnwatched is the error of Transport.Watch if the ranks cannot connect.
var ErrUnwatched = errors.New("the ranks have no TCP connection to rank 0")

// A reply is what each rank reports after it has tried to connect.
type reply struct {
	Process string // description
	Problem string // empty if the rank is connected
}

// newWatch connects the ranks of g; rank 0 listens at address. All ranks call it. If one cannot
// connect, all return an error that matches ErrUnwatched.
func newWatch(g *comm.Group, address string) (*watch, error) {
	w := &watch{peers: map[int]net.Conn{}, beat: time.Second}
	e := &entrance{peers: w.peers}
	var failure error // of this rank
	if g.Rank() == 0 {
		failure = e.open(address)
	}
	offers, err := gather(g, e.offer)
	if err != nil {
		return nil, err
	}
	if g.Rank() > 0 {
		var conn net.Conn
		if conn, failure = offers[0].connect(g.Rank()); failure == nil {
			w.peers[0] = conn
		}
	}
	host, _ := os.Hostname() // only for messages
	own := reply{Process: fmt.Sprintf("process %d on host %s", os.Getpid(), host)}
	if failure != nil {
		own.Problem = failure.Error()
	}
	replies, err := gather(g, own)
	e.close()
	for rank, r := range replies {
		w.processes = append(w.processes, r.Process)
		if r.Problem != "" && err == nil {
			err = fmt.Errorf("%w: rank %d (%s): %s", ErrUnwatched, rank, r.Process, r.Problem)
		}
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// start begins to watch. ended is called once, if another rank ends before its work is complete, or
// hangs: with nil if a rank has printed an error, otherwise with an error that names the rank.
func (w *watch) start(ended func(error)) {
	var once sync.Once
	for rank, conn := range w.peers {
		w.readers.Go(func() {
			last, err := w.last(conn)
			switch {
			case w.left.Load():
			case err != nil:
				once.Do(func() {
					ended(fmt.Errorf("lost rank %d (%s): %w: resume the run from its last checkpoint", rank, w.processes[rank], err))
				})
			case last == failed:
				once.Do(func() { ended(nil) })
			}
		})
	}
	go func() {
		for !w.left.Load() {
			for _, conn := range w.peers {
				_, _ = conn.Write([]byte{running}) // last notices that the peer has ended
			}
			time.Sleep(w.beat)
		}
	}()
}

// last waits for the last byte of a connection. It counts its own waits, not the time: the whole job may
// have been stopped, too.
func (w *watch) last(conn net.Conn) (byte, error) {
	for silent := 0; silent < beats; {
		var next [1]byte
		err := conn.SetReadDeadline(time.Now().Add(w.beat))
		if err == nil {
			_, err = conn.Read(next[:])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			silent++
		case err != nil:
			return 0, errors.New("it was killed or has crashed, or its host cannot be reached")
		case next[0] != running:
			return next[0], nil
		default:
			silent = 0
		}
	}
	return 0, errSilent
}

// leave sends the last byte of this rank. Only the first call has an effect.
func (w *watch) leave(last byte) {
	if w == nil || w.left.Swap(true) {
		return
	}
	for _, conn := range w.peers {
		_, _ = conn.Write([]byte{last}) // the peer may have ended before
	}
}

// close closes the connections.
func (w *watch) close() {
	for _, conn := range w.peers {
		_ = conn.Close() // nothing is lost
	}
}

// gather returns the value of every rank.
func gather[T any](g *comm.Group, own T) ([]T, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := g.GatherAll(text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}
