package mpi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/microscale-go/microscale/internal/comm"
)

// A watch notices that the process of another rank has ended. Some launchers do not: after a rank was
// killed, Slurm's srun with PMI-2 lets the others wait for it.
//
// Every rank has a TCP connection to rank 0. The kernel closes it when a process ends, whatever the
// reason. A rank that ends on purpose sends a byte first. A rank whose connection ends without that byte
// was killed or has crashed, and rank 0 tells the others.
type watch struct {
	peers     map[int]net.Conn // by rank: rank 0 has all others, the others have rank 0
	processes []string         // descriptions, by rank
	left      atomic.Bool      // leave was called
	readers   sync.WaitGroup   // of start
}

// The last byte that a rank sends.
const (
	completed = 'c' // its work is complete
	failed    = 'f' // it has printed an error, or was told so
)

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
	w := &watch{peers: map[int]net.Conn{}}
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

// start begins to watch. ended is called once, if another rank ends before its work is complete: with
// nil if a rank has printed an error, otherwise with an error that names the rank.
func (w *watch) start(ended func(error)) {
	var once sync.Once
	for rank, conn := range w.peers {
		w.readers.Go(func() {
			var last [1]byte
			_, err := io.ReadFull(conn, last[:])
			switch {
			case w.left.Load():
			case err != nil:
				once.Do(func() {
					ended(fmt.Errorf("lost rank %d (%s): it was killed or has crashed, or its host cannot be reached: resume the run from its last checkpoint", rank, w.processes[rank]))
				})
			case last[0] == failed:
				once.Do(func() { ended(nil) })
			}
		})
	}
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
