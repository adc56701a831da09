package comm_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
)

// TestOperations runs every operation with 1 to 9 goroutine ranks.
func TestOperations(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		var mu sync.Mutex
		sums := map[uint64]int{}
		err := comm.Run(n, comm.Options{}, func(g *comm.Group) error {
			sum, err := commtest.Check(g)
			mu.Lock()
			defer mu.Unlock()
			sums[sum]++
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
		if len(sums) != 1 {
			t.Errorf("%d ranks: results differ: %v", n, sums)
		}
	}
	if _, err := commtest.Check(comm.Self()); err != nil {
		t.Error(err)
	}
}

// TestTraffic compares the bytes that are counted with the cost of each operation: a part of the
// bytes for each other rank.
func TestTraffic(t *testing.T) {
	const n, values = 4, 4 * 32 * 100
	for _, wire := range commtest.Wires() {
		err := comm.Run(n, comm.Options{}, func(g *comm.Group) error {
			if err := g.For("gradients").AllReduce(make([]float32, values), wire); err != nil {
				return err
			}
			if err := g.Barrier(); err != nil {
				return err
			}
			want := int64(2 * (n - 1) * wire.Size(values/n))
			if got := g.Traffic(); got["gradients"] != want || len(got) != 1 {
				return fmt.Errorf("%s: counted %v, want %d", wire, got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func ExampleRun() {
	err := comm.Run(4, comm.Options{}, func(g *comm.Group) error {
		x := []float32{1, float32(g.Rank())}
		if err := g.AllReduce(x, comm.F32); err != nil {
			return err
		}
		if g.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// [4 6]
	// <nil>
}

// crossed exchanges a byte between ranks 0 and 1 in each of two groups, which rank 1 starts in the
// opposite order.
func crossed(a, b *comm.Group) error {
	groups := []*comm.Group{a, b}
	if a.Rank() == 1 {
		groups = []*comm.Group{b, a}
	}
	var requests []*comm.Request
	var received [][][]byte
	for _, g := range groups {
		own := byte(1)
		if g == b {
			own = 2
		}
		all := make([][]byte, g.Size())
		for i := range all {
			all[i] = make([]byte, 1)
		}
		received = append(received, all)
		requests = append(requests, g.StartAllGather(all, []byte{own}))
	}
	for i, r := range requests {
		if err := r.Wait(); err != nil {
			return err
		}
		if all := received[i]; all[0][0] != all[1][0] {
			return fmt.Errorf("rank %d received %v: messages of two groups are mixed", a.Rank(), all)
		}
	}
	return nil
}

// TestSplitTags runs operations of two groups of the same ranks in different orders. Messages of one
// group never reach the other, also if some ranks have split other groups before.
func TestSplitTags(t *testing.T) {
	err := comm.Run(4, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
		pair, err := g.Split("pair", g.Rank()/2)
		if err != nil {
			return err
		}
		again, err := g.Split("again", g.Rank()/2)
		if err != nil {
			return err
		}
		if err := crossed(pair, again); err != nil {
			return err
		}
		inner := pair
		if g.Rank() < 2 {
			if inner, err = pair.Split("inner", 0); err != nil {
				return err
			}
		}
		whole, err := g.Split("whole", g.Rank()/2)
		if err != nil {
			return err
		}
		return crossed(inner, whole)
	})
	if err != nil {
		t.Error(err)
	}
	g := comm.Self()
	for i := 0; err == nil; i++ {
		if _, err = g.Split("s", 0); i > 1<<15 {
			t.Fatal("no limit to the number of groups")
		}
	}
	if !strings.Contains(err.Error(), "more than 32767 groups") {
		t.Error(err)
	}
}
