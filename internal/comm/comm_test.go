package comm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/comm"
	"github.com/microscale-go/microscale/internal/commtest"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
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

// tree is the definition of Sum for one element.
func tree(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	left := 1
	for 2*left < len(x) {
		left *= 2
	}
	return tree(x[:left]) + tree(x[left:])
}

// TestSum compares Sum with its definition, and checks that ranks may sum runs of 2^k parts
// first.
func TestSum(t *testing.T) {
	const n = 600
	for count := 1; count <= 20; count++ {
		parts := make([][]float32, count)
		for i := range parts {
			parts[i] = commtest.Values(i, n)
		}
		got := make([]float32, n)
		comm.Sum(got, parts...)
		for i := range got {
			column := make([]float32, count)
			for p := range parts {
				column[p] = parts[p][i]
			}
			if want := tree(column); math.Float32bits(got[i]) != math.Float32bits(want) {
				t.Fatalf("%d parts, element %d: got %g, want %g", count, i, got[i], want)
			}
		}
		for run := 1; run <= count; run *= 2 {
			if count%run != 0 {
				continue
			}
			var sums [][]float32
			for i := 0; i < count; i += run {
				sum := make([]float32, n)
				comm.Sum(sum, parts[i:i+run]...)
				sums = append(sums, sum)
			}
			again := sums[0] // also the destination
			comm.Sum(again, sums...)
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(again[i]) {
					t.Fatalf("%d parts in runs of %d, element %d: got %g, want %g", count, run, i, again[i], got[i])
				}
			}
		}
	}
}

// TestCut checks that every element has one owner, and parts begin at whole blocks.
func TestCut(t *testing.T) {
	for n := range 300 {
		for ranks := 1; ranks <= 9; ranks++ {
			for _, block := range []int{1, 32, 128} {
				cuts := comm.Cut(n, ranks, block)
				if cuts[0] != 0 || cuts[ranks] != n {
					t.Fatalf("Cut(%d, %d, %d) = %v", n, ranks, block, cuts)
				}
				for i := range ranks {
					if size := cuts[i+1] - cuts[i]; size < 0 || size > (n/ranks/block+2)*block || cuts[i]%block != 0 && cuts[i] != n {
						t.Fatalf("Cut(%d, %d, %d) = %v", n, ranks, block, cuts)
					}
				}
			}
		}
	}
}

// TestWireSizes checks what formats cost on the way, in bits per value.
func TestWireSizes(t *testing.T) {
	want := map[string]float64{"f32": 32, "bf16": 16, "mxfp8": 8.25, "nvfp4": 4.5, "fp8-vec128": 8.25}
	for _, w := range commtest.Wires() {
		const n = 1 << 20
		size := w.Size(n)
		if w.String() == "nvfp4" {
			size -= 4 // the global scale
		}
		if got := float64(size) * 8 / n; got != want[w.String()] {
			t.Errorf("%s: %g bits per value, want %g", w, got, want[w.String()])
		}
	}
}

// TestQuantizedRejects lists formats that cannot travel.
func TestQuantizedRejects(t *testing.T) {
	for _, f := range []quant.Format{quant.FP8Tensor, quant.FP8Row, quant.FP8Block, quant.BF16} {
		if _, err := comm.Quantized(quant.Quantizer{Format: f}); err == nil {
			t.Errorf("%s: no error", f)
		}
	}
}

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

// TestReduceScatterMemory checks what sums allocate on each of 4 ranks: the first of FP32 values the three
// quarters that it receives, and later ones nothing, unless the garbage collector has emptied a pool.
func TestReduceScatterMemory(t *testing.T) {
	mxfp8, err := comm.Quantized(quant.Quantizer{Format: quant.MXFP8})
	if err != nil {
		t.Fatal(err)
	}
	const ranks, n = 4, 1 << 20
	for _, wire := range []comm.Wire{comm.F32, comm.BF16, mxfp8} {
		var marks [6]runtime.MemStats
		err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
			src, cuts := make([]float32, n), comm.Cut(n, ranks, wire.Block())
			dst := make([]float32, n/ranks)
			for i := range marks {
				if err := g.Barrier(); err != nil {
					return err
				}
				if g.Rank() == 0 {
					runtime.ReadMemStats(&marks[i])
				}
				if err := g.Barrier(); err != nil {
					return err
				}
				if err := g.ReduceScatter(dst, src, cuts, wire); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		allocated := func(i int) float64 {
			return float64(marks[i+1].TotalAlloc-marks[i].TotalAlloc) / (ranks * 4 * n)
		}
		if got := allocated(0); wire == comm.F32 && (got < 0.75 || got > 0.8) {
			t.Errorf("allocated %.3f times the memory of the values, want 0.75 and a chunk", got)
		}
		if got := min(allocated(1), allocated(2), allocated(3), allocated(4)); got > 0.02 {
			t.Errorf("%s: each later sum allocated at least %.3f times the memory of the values", wire, got)
		}
	}
}

// TestVectors sums vectors of slices that end within chunks, with one and with three goroutines for each
// rank, and compares the bits with those of a single slice.
func TestVectors(t *testing.T) {
	const ranks = 2
	lengths := []int{5, 40_000, 0, 1, 70_000, 33}
	mxfp8, err := comm.Quantized(quant.Quantizer{Format: quant.MXFP8})
	if err != nil {
		t.Fatal(err)
	}
	for _, wire := range []comm.Wire{comm.F32, comm.BF16, mxfp8} {
		for _, threads := range []int{1, 3} {
			err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
				g = g.Threads(threads)
				parts := make([]comm.Vector, ranks)
				var want []float32
				for i := range parts {
					var sum []float32
					for rank := range ranks {
						var whole []float32
						for k, n := range lengths {
							x := commtest.Values(100*rank+10*i+k, n)
							if rank == g.Rank() {
								parts[i] = append(parts[i], slices.Clone(x))
							}
							whole = append(whole, x...)
						}
						comm.Round(whole, whole, wire)
						if rank == 0 {
							sum = whole
						} else {
							comm.Sum(sum, sum, whole)
						}
					}
					comm.Round(sum, sum, wire)
					want = append(want, sum...)
				}
				if err := g.StartReduceScatter(parts, wire).Wait(); err != nil {
					return err
				}
				if err := g.StartAllGatherFloats(parts, wire).Wait(); err != nil {
					return err
				}
				got := slices.Concat(slices.Concat(parts...)...)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						return fmt.Errorf("%s, %d threads: value %d is %g, want %g", wire, threads, i, got[i], want[i])
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestQuantizedRows compares messages with the codes and scales of a single row.
func TestQuantizedRows(t *testing.T) {
	for _, f := range []quant.Format{quant.MXFP8, quant.FP8Vec128, quant.NVFP4} {
		q := quant.Quantizer{Format: f}
		wire, err := comm.Quantized(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 100, 384, 1280, 8192, 3 * 4096, 3*4096 + 128} {
			src := make([]float32, n)
			for i := range src {
				src[i] = float32(i%97-48) * float32(1+i/50)
			}
			data := make([]byte, wire.Size(n))
			wire.Encode(data, src)
			row, err := q.Rowwise(tensor.Of(1, n, src), quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Concat(row.Codes, row.ScaleBytes())
			if f.Global {
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(row.Global))
			}
			got := make([]float32, n)
			wire.Decode(got, data)
			if !bytes.Equal(data, want) || !slices.Equal(got, row.Dequantize(1).Data) {
				t.Errorf("%s: %d values differ from those of a single row", f, n)
			}
		}
	}
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
