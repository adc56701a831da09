package comm

import (
	"encoding/binary"
	"fmt"

	"github.com/microscale-go/microscale/internal/memory"
)

// Cut returns where the part of each rank begins if n elements are divided among ranks at
// multiples of block elements, about equally: rank i has elements [cuts[i], cuts[i+1]).
func Cut(n, ranks, block int) []int {
	blocks := (n + block - 1) / block
	cuts := make([]int, ranks+1)
	for i := range cuts {
		cuts[i] = min(n, blocks*i/ranks*block)
	}
	return cuts
}

// ReduceScatter sets dst to the sum over all ranks of the caller's part of their src. Rank i has
// the part between cuts[i] and cuts[i+1] (see Cut). Values travel in wire's format and are added
// in float32 in the order of Sum, each rank's own after it was rounded like the others.
func (g *Group) ReduceScatter(dst, src []float32, cuts []int, wire Wire) error {
	return g.StartReduceScatter(dst, src, cuts, wire).Wait()
}

// StartReduceScatter is ReduceScatter without waiting. src may be used again at once, dst after
// Request.Wait, which adds. dst may be the caller's part of src.
func (g *Group) StartReduceScatter(dst, src []float32, cuts []int, wire Wire) *Request {
	if err := g.checkCuts(len(src), cuts, wire); err != nil {
		return failed(fmt.Errorf("reduce-scatter in %s: %w", g, err))
	}
	if want := cuts[g.rank+1] - cuts[g.rank]; len(dst) != want {
		return failed(fmt.Errorf("reduce-scatter in %s: got %d elements for rank %d, want %d", g, len(dst), g.rank, want))
	}
	if g.Size() == 1 {
		Round(dst, src, wire)
		return &Request{}
	}
	send, receive := make([][]byte, g.Size()), make([][]byte, g.Size())
	parts := make([][]float32, g.Size())
	own := &lease{buffers: &g.job.buffers}
	for i := range send {
		part := src[cuts[i]:cuts[i+1]]
		if i == g.rank {
			own.round(dst, part, wire)
			parts[i] = dst
			continue
		}
		send[i] = own.bytes(wire.Size(len(part)))
		wire.Encode(send[i], part)
		if wire == F32 {
			parts[i] = own.floats(len(dst))
			receive[i] = memory.Bytes(parts[i])
		} else {
			receive[i] = own.bytes(wire.Size(len(dst)))
		}
	}
	return g.exchange("reduce-scatter", receive, send).andThen(func() error {
		for i, data := range receive {
			if parts[i] == nil {
				parts[i] = own.floats(len(dst))
				wire.Decode(parts[i], data)
			}
		}
		Sum(dst, parts...)
		own.end()
		return nil
	})
}

// round is Round with a buffer of the lease.
func (l *lease) round(dst, src []float32, wire Wire) {
	if wire == F32 {
		copy(dst, src)
		return
	}
	data := l.bytes(wire.Size(len(src)))
	wire.Encode(data, src)
	wire.Decode(dst, data)
}

// AllReduce sets x to the sum of x over all ranks, the same bits on each. Values travel in wire's
// format twice: to the rank that adds them and back.
func (g *Group) AllReduce(x []float32, wire Wire) error {
	cuts := Cut(len(x), g.Size(), wire.Block())
	own := x[cuts[g.rank]:cuts[g.rank+1]]
	if err := g.ReduceScatter(own, x, cuts, wire); err != nil {
		return err
	}
	return g.AllGatherFloats(x, cuts, wire)
}

// AllGatherFloats sets the part of x between cuts[i] and cuts[i+1] to that of rank i, on every
// rank. Every rank has the same bits afterwards: the rank that has a part rounds it to wire's
// format, too.
func (g *Group) AllGatherFloats(x []float32, cuts []int, wire Wire) error {
	return g.StartAllGatherFloats(x, cuts, wire).Wait()
}

// StartAllGatherFloats is AllGatherFloats without waiting. x belongs to the operation until
// Request.Wait, which decodes.
func (g *Group) StartAllGatherFloats(x []float32, cuts []int, wire Wire) *Request {
	if err := g.checkCuts(len(x), cuts, wire); err != nil {
		return failed(fmt.Errorf("all-gather in %s: %w", g, err))
	}
	receive := make([][]byte, g.Size())
	buffers := &lease{buffers: &g.job.buffers}
	for i := range receive {
		if part := x[cuts[i]:cuts[i+1]]; wire == F32 {
			receive[i] = memory.Bytes(part)
		} else {
			receive[i] = buffers.bytes(wire.Size(len(part)))
		}
	}
	if wire == F32 {
		return g.StartAllGather(receive, receive[g.rank])
	}
	send := receive[g.rank]
	wire.Encode(send, x[cuts[g.rank]:cuts[g.rank+1]])
	return g.StartAllGather(receive, send).andThen(func() error {
		for i, data := range receive {
			wire.Decode(x[cuts[i]:cuts[i+1]], data)
		}
		buffers.end()
		return nil
	})
}

// GatherAll returns the src of every rank. They may differ in length.
func (g *Group) GatherAll(src []byte) ([][]byte, error) {
	if g.Size() == 1 {
		return [][]byte{src}, nil
	}
	lengths, err := g.gatherPairs(int64(len(src)), 0)
	if err != nil {
		return nil, err
	}
	all := make([][]byte, g.Size())
	for i, n := range lengths {
		all[i] = make([]byte, n[0])
	}
	return all, g.AllGather(all, src)
}

// Max sets each element of x to its largest value over all ranks. NaN on one rank becomes NaN on
// all.
func (g *Group) Max(x []float32) error {
	all := make([][]float32, g.Size())
	receive := make([][]byte, g.Size())
	for i := range all {
		all[i] = make([]float32, len(x))
		receive[i] = memory.Bytes(all[i])
	}
	copy(all[g.rank], x)
	if err := g.AllGather(receive, receive[g.rank]); err != nil {
		return err
	}
	for _, other := range all {
		for i, v := range other {
			x[i] = max(x[i], v)
		}
	}
	return nil
}

// checkCuts returns an error unless cuts divide n elements among the ranks at whole blocks.
func (g *Group) checkCuts(n int, cuts []int, wire Wire) error {
	if len(cuts) != g.Size()+1 || cuts[0] != 0 || cuts[g.Size()] != n {
		return fmt.Errorf("got cuts %v, want %d from 0 to %d", cuts, g.Size()+1, n)
	}
	for i, c := range cuts[1:] {
		if c < cuts[i] || c != n && c%wire.Block() != 0 {
			return fmt.Errorf("got a cut at element %d, want increasing multiples of %d", c, wire.Block())
		}
	}
	return nil
}

// gatherPairs returns the two numbers of every rank.
func (g *Group) gatherPairs(a, b int64) ([][2]int64, error) {
	const size = 16
	own := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(a)), uint64(b))
	receive := make([][]byte, g.Size())
	for i := range receive {
		receive[i] = make([]byte, size)
	}
	if err := g.AllGather(receive, own); err != nil {
		return nil, err
	}
	all := make([][2]int64, g.Size())
	for i, data := range receive {
		all[i] = [2]int64{int64(binary.LittleEndian.Uint64(data)), int64(binary.LittleEndian.Uint64(data[size/2:]))}
	}
	return all, nil
}
