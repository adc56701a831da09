package mpi

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
)

// kill closes the connections of a rank, as the end of its process does.
func kill(w *watch) {
	w.left.Store(true) // it reports nothing more
	w.close()
}

// TestWatch ends one of four ranks, or three, or has one that does not run. A rank that is told ends, too, as it does with a Transport.
func TestWatch(t *testing.T) {
	const ranks = 4
	type results [ranks]string // of start, by rank: an error, "told" or nothing
	for name, c := range map[string]struct {
		ending []int
		end    func(*watch)
		want   results
	}{
		"all others complete": {[]int{1, 2, 3}, func(w *watch) { w.leave(completed); kill(w) }, results{}},
		"rank 2 is killed":    {[]int{2}, kill, results{"lost rank 2 (process ", "told", "", "told"}},
		"rank 0 is killed":    {[]int{0}, kill, results{"", "lost rank 0 (process ", "lost rank 0 (process ", "lost rank 0 (process "}},
		"rank 2 is stopped":   {nil, nil, results{"lost rank 2 (process ", "told", "", "told"}},
		"rank 3 fails":        {[]int{3}, func(w *watch) { w.leave(failed); kill(w) }, results{"told", "told", "told", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var watches [ranks]*watch
			if err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) (err error) {
				watches[g.Rank()], err = newWatch(g, "127.0.0.1:0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			var got results
			for rank, w := range watches {
				if c.end == nil {
					w.beat = 100 * time.Millisecond
					if rank == 2 {
						continue
					}
				}
				w.start(func(err error) {
					got[rank] = "told"
					if err != nil {
						got[rank] = err.Error()
					}
					w.leave(failed)
					kill(w)
				})
			}
			for _, rank := range c.ending {
				c.end(watches[rank])
			}
			for rank, w := range watches {
				w.readers.Wait()
				w.close()
				if (got[rank] == "") != (c.want[rank] == "") || !strings.HasPrefix(got[rank], c.want[rank]) {
					t.Errorf("rank %d: got %q, want %q", rank, got[rank], c.want[rank])
				}
			}
		})
	}
}

// TestUnwatched has a rank 0 that cannot listen, and one that the others cannot reach: it listens at
// 127.0.0.2 and offers the addresses of its interfaces, as behind a firewall.
func TestUnwatched(t *testing.T) {
	for _, address := range []string{"127.0.0.1:99999", "127.0.0.2:0"} {
		err := comm.Run(3, comm.Options{}, func(g *comm.Group) error {
			w, err := newWatch(g, address)
			if w != nil || !errors.Is(err, ErrUnwatched) {
				t.Errorf("%s: rank %d: got %v, %v", address, g.Rank(), w, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestEntrance connects programs that are no ranks, one that is, and one that is late. A rank does not
// take another program with the port of rank 0 for rank 0.
func TestEntrance(t *testing.T) {
	e := &entrance{peers: map[int]net.Conn{}}
	if err := e.open("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := e.listener.Addr().String()
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	stranger := e.offer
	stranger.Key = make([]byte, keySize)
	if _, err := stranger.connect(1); !errors.Is(err, io.EOF) {
		t.Errorf("with a wrong key: %v", err)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	go func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(bytes.Repeat([]byte{1}, keySize))
		}
	}()
	own := e.offer
	own.Addresses = append([]string{other.Addr().String()}, own.Addresses...)
	conn, err := own.connect(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	late, err := own.dial(address)
	if err != nil {
		t.Fatal(err)
	}
	e.close()
	if _, err := own.introduce(late, 3); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if len(e.peers) != 1 || e.peers[2].RemoteAddr().String() != conn.LocalAddr().String() {
		t.Errorf("got %v, want rank 2", e.peers)
	}
}
