package comm_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/quant"
)

// TestFailures checks what the other ranks return, and Run, when one fails.
func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	for name, fail := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic(broken) },
	} {
		var mu sync.Mutex
		var others []error
		err := comm.Run(4, comm.Options{}, func(g *comm.Group) error {
			if g.Rank() == 2 {
				return fail()
			}
			err := g.Barrier()
			mu.Lock()
			defer mu.Unlock()
			others = append(others, err)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "broken") || errors.Is(err, comm.ErrAborted) {
			t.Errorf("%s: Run returned %v", name, err)
		}
		for _, err := range others {
			if !errors.Is(err, comm.ErrAborted) {
				t.Errorf("%s: another rank returned %v", name, err)
			}
		}
	}
}

// TestExit has a rank whose goroutine exits, as t.FailNow of package testing does.
func TestExit(t *testing.T) {
	result := make(chan error, 1)
	go func() {
		result <- comm.Run(2, comm.Options{}, func(g *comm.Group) error {
			if g.Rank() == 1 {
				runtime.Goexit()
			}
			return g.Barrier()
		})
	}()
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), "rank 1: the goroutine exited") {
			t.Errorf("got %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the other rank waits")
	}
}

// TestTimeout has a rank that does not come.
func TestTimeout(t *testing.T) {
	err := comm.Run(3, comm.Options{Timeout: 50 * time.Millisecond}, func(g *comm.Group) error {
		if g.Rank() == 1 {
			return nil
		}
		return g.For("weights").AllGather(make([][]byte, 3), nil)
	})
	if err != nil {
		t.Errorf("nothing to wait for: %v", err)
	}
	err = comm.Run(3, comm.Options{Timeout: 50 * time.Millisecond}, func(g *comm.Group) error {
		if g.Rank() == 1 {
			return nil
		}
		return g.For("weights").AllReduce(make([]float32, 300), comm.F32)
	})
	if err == nil || !strings.Contains(err.Error(), "reduce-scatter of weights in world[0 1 2]: no answer from rank 1 within") {
		t.Errorf("got %v", err)
	}
}

// TestLateWait waits for operations that are complete already: the time limit has no effect.
func TestLateWait(t *testing.T) {
	for range 50 {
		var started sync.WaitGroup
		started.Add(2)
		err := comm.Run(2, comm.Options{Timeout: time.Nanosecond}, func(g *comm.Group) error {
			r := g.StartAllToAll([][]byte{make([]byte, 1), make([]byte, 1)}, [][]byte{{1}, {2}})
			started.Done()
			started.Wait()
			return r.Wait()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMismatch has ranks that disagree about the length of a message, and other wrong calls.
func TestMismatch(t *testing.T) {
	err := comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		return g.AllToAll([][]byte{make([]byte, 4), make([]byte, 4)}, [][]byte{make([]byte, 4), make([]byte, 4+4*g.Rank())})
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("different lengths: %v", err)
	}
	for name, f := range map[string]func(*comm.Group) error{
		"got 1 destinations, want 2": func(g *comm.Group) error { return g.AllGather(make([][]byte, 1), nil) },
		"no rank 2":                  func(g *comm.Group) error { return g.Broadcast(nil, 2) },
		"got 1 elements for rank": func(g *comm.Group) error {
			return g.ReduceScatter(make([]float32, 1), make([]float32, 4), []int{0, 2, 4}, comm.F32)
		},
		"got cuts [0 4]": func(g *comm.Group) error {
			return g.ReduceScatter(make([]float32, 4), make([]float32, 4), []int{0, 4}, comm.F32)
		},
		"got cuts [0]": func(g *comm.Group) error {
			return g.AllGatherFloats(make([]float32, 4), []int{0}, comm.F32)
		},
		"a cut at element 40": func(g *comm.Group) error {
			w, _ := comm.Quantized(quant.Quantizer{Format: quant.MXFP8})
			return g.AllGatherFloats(make([]float32, 80), []int{0, 40, 80}, w)
		},
	} {
		if err := comm.Run(2, comm.Options{}, f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
}
