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
// the part between cuts[i] and cuts[i+1] (see Cut). All values are rounded to wire's format, those of the
// caller as well, and added in float32 in the order of Sum. dst may be the caller's part of src.
func (g *Group) ReduceScatter(dst, src []float32, cuts []int, wire Wire) error {
	if err := g.checkCuts(len(src), cuts, wire); err != nil {
		return fmt.Errorf("reduce-scatter in %s: %w", g, err)
	}
	if want := cuts[g.rank+1] - cuts[g.rank]; len(dst) != want {
		return fmt.Errorf("reduce-scatter in %s: got %d elements for rank %d, want %d", g, len(dst), g.rank, want)
	}
	parts := split(src, cuts)
	copy(dst, parts[g.rank][0])
	parts[g.rank] = Vector{dst}
	return g.StartReduceScatter(parts, wire).Wait()
}

// StartReduceScatter begins to replace parts[g.Rank()] with its sum over all ranks. parts[i] are the values
// that rank i adds, rounded and added as ReduceScatter does. They belong to the operation until
// Request.Wait, which adds; only the part of the caller changes.
func (g *Group) StartReduceScatter(parts []Vector, wire Wire) *Request {
	const operation = "reduce-scatter"
	if len(parts) != g.Size() {
		return failed(fmt.Errorf("%s in %s: got %d parts, want %d", operation, g, len(parts), g.Size()))
	}
	own := parts[g.rank]
	n := own.Len()
	l := &lease{buffers: &g.job.buffers}
	terms := make([]term, g.Size())
	var messages []Message
	for i, part := range parts {
		if wire != F32 {
			terms[i].encoded = l.bytes(messageSize(wire, n))
		}
		switch {
		case i == g.rank && wire != F32:
			g.encode(terms[i].encoded, own, wire)
		case i == g.rank:
		case wire == F32:
			terms[i].values = l.floats(n)
			messages = appendSlices(messages, Message{Peer: i}, own.Like(terms[i].values))
			messages = appendSlices(messages, Message{Peer: i, Send: true}, part)
		default:
			data := l.bytes(messageSize(wire, part.Len()))
			g.encode(data, part, wire)
			messages = append(messages, Message{Peer: i, Data: terms[i].encoded}, Message{Peer: i, Send: true, Data: data})
		}
	}
	return g.start(operation, messages).andThen(func() error {
		g.sum(own, terms, wire)
		l.end()
		return nil
	})
}

// A term is what a rank adds to the part of the caller: a message, or values in FP32. It is empty for the
// caller's own values in FP32.
type term struct {
	encoded []byte
	values  []float32
}

// sum sets own to the sum of what was received, and of own in FP32.
func (g *Group) sum(own Vector, all []term, wire Wire) {
	buffers := 1
	if wire != F32 {
		buffers += len(all)
	}
	g.chunks(own.Len(), buffers, func(from, to int, scratch [][]float32) {
		total := own.load(scratch[0], from, to)
		values := make([][]float32, len(all))
		for i, t := range all {
			switch {
			case wire != F32:
				values[i] = scratch[1+i][:to-from]
				wire.Decode(values[i], chunk(t.encoded, wire, from, to))
			case i == g.rank:
				values[i] = total
			default:
				values[i] = t.values[from:to]
			}
		}
		Sum(total, values...)
		own.store(total, from)
	})
}

// appendSlices appends copies of message m with the memory of each slice of v.
func appendSlices(list []Message, m Message, v Vector) []Message {
	for _, x := range v {
		m.Data = memory.Bytes(x)
		list = append(list, m)
	}
	return list
}

// AllReduce sets x to the sum of x over all ranks, the same bits on each. Values travel in wire's
// format twice: to the rank that adds them and back.
func (g *Group) AllReduce(x []float32, wire Wire) error {
	parts := split(x, Cut(len(x), g.Size(), wire.Block()))
	if err := g.StartReduceScatter(parts, wire).Wait(); err != nil {
		return err
	}
	return g.StartAllGatherFloats(parts, wire).Wait()
}

// AllGatherFloats sets the part of x between cuts[i] and cuts[i+1] to that of rank i, on every
// rank. Every rank has the same bits afterwards: the rank that has a part rounds it to wire's
// format, too.
func (g *Group) AllGatherFloats(x []float32, cuts []int, wire Wire) error {
	if err := g.checkCuts(len(x), cuts, wire); err != nil {
		return fmt.Errorf("all-gather in %s: %w", g, err)
	}
	return g.StartAllGatherFloats(split(x, cuts), wire).Wait()
}

// StartAllGatherFloats begins to set parts[i] to that of rank i, rounded as AllGatherFloats does. They
// belong to the operation until Request.Wait, which decodes.
func (g *Group) StartAllGatherFloats(parts []Vector, wire Wire) *Request {
	const operation = "all-gather"
	if len(parts) != g.Size() {
		return failed(fmt.Errorf("%s in %s: got %d parts, want %d", operation, g, len(parts), g.Size()))
	}
	var messages []Message
	own := parts[g.rank]
	if wire == F32 {
		for i, part := range parts {
			if i != g.rank {
				messages = appendSlices(messages, Message{Peer: i}, part)
				messages = appendSlices(messages, Message{Peer: i, Send: true}, own)
			}
		}
		return g.start(operation, messages)
	}
	l := &lease{buffers: &g.job.buffers}
	encoded := make([][]byte, g.Size())
	for i, part := range parts {
		encoded[i] = l.bytes(messageSize(wire, part.Len()))
	}
	g.encode(encoded[g.rank], own, wire)
	for i := range parts {
		if i != g.rank {
			messages = append(messages, Message{Peer: i, Data: encoded[i]}, Message{Peer: i, Send: true, Data: encoded[g.rank]})
		}
	}
	return g.start(operation, messages).andThen(func() error {
		for i, part := range parts {
			g.decode(part, encoded[i], wire)
		}
		l.end()
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
