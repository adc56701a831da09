// Package commtest checks the operations of a comm.Group, whatever moves its data.
package commtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math"
	"math/rand/v2"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/quant"
)

// Check runs every operation of a group on data that every rank knows, and returns a checksum
// of the results of sums, which is the same on every rank and with every transport. It returns
// an error if a result is wrong.
func Check(g *comm.Group) (checksum uint64, err error) {
	c := &checker{g: g, hash: crc64.New(crc64.MakeTable(crc64.ECMA))}
	steps := []func() error{c.allGather, c.gatherAll, c.allToAll, c.broadcast, c.barrier, c.max, c.sums, c.overlap, c.split}
	for _, step := range steps {
		if err := step(); err != nil {
			return 0, fmt.Errorf("rank %d of %d: %w", g.Rank(), g.Size(), err)
		}
	}
	return c.hash.Sum64(), nil
}

type checker struct {
	g    *comm.Group
	hash interface {
		Write(p []byte) (int, error)
		Sum64() uint64
	}
}

// sizes are those of messages, in bytes: none, small, and beyond what transports send at once.
var sizes = []int{0, 1, 3, 1000, 1<<20 + 7}

// data returns the n bytes that rank from sends to rank to.
func data(from, to, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + from*31 + to*101)
	}
	return b
}

func (c *checker) allGather() error {
	for _, n := range sizes {
		dst := make([][]byte, c.g.Size())
		for i := range dst {
			dst[i] = make([]byte, n+i)
		}
		if err := c.g.AllGather(dst, data(c.g.Rank(), 0, n+c.g.Rank())); err != nil {
			return err
		}
		for i := range dst {
			if !bytes.Equal(dst[i], data(i, 0, n+i)) {
				return fmt.Errorf("all-gather of %d bytes: wrong data of rank %d", n, i)
			}
		}
	}
	return nil
}

func (c *checker) gatherAll() error {
	for _, n := range sizes {
		all, err := c.g.GatherAll(data(c.g.Rank(), 2, n*c.g.Rank()))
		if err != nil {
			return err
		}
		for i := range all {
			if !bytes.Equal(all[i], data(i, 2, n*i)) {
				return fmt.Errorf("gather of %d bytes per rank: wrong data of rank %d", n, i)
			}
		}
	}
	return nil
}

func (c *checker) allToAll() error {
	for _, n := range sizes {
		dst, src := make([][]byte, c.g.Size()), make([][]byte, c.g.Size())
		for i := range dst {
			dst[i] = make([]byte, n+i+2*c.g.Rank())
			src[i] = data(c.g.Rank(), i, n+c.g.Rank()+2*i)
		}
		if err := c.g.AllToAll(dst, src); err != nil {
			return err
		}
		for i := range dst {
			if !bytes.Equal(dst[i], data(i, c.g.Rank(), len(dst[i]))) {
				return fmt.Errorf("all-to-all of %d bytes: wrong data of rank %d", n, i)
			}
		}
	}
	return nil
}

func (c *checker) broadcast() error {
	for root := range c.g.Size() {
		want := data(root, 1, 100_000+root)
		got := make([]byte, len(want))
		if root == c.g.Rank() {
			copy(got, want)
		}
		if err := c.g.Broadcast(got, root); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("broadcast of rank %d: wrong data", root)
		}
	}
	return nil
}

func (c *checker) barrier() error { return c.g.Barrier() }

func (c *checker) max() error {
	x := []float32{float32(c.g.Rank()), -float32(c.g.Rank()), 5, float32(math.Inf(-1))}
	if c.g.Rank() == c.g.Size()-1 {
		x[2] = float32(math.NaN())
	}
	if err := c.g.Max(x); err != nil {
		return err
	}
	if x[0] != float32(c.g.Size()-1) || x[1] != 0 || x[2] == x[2] || !math.IsInf(float64(x[3]), -1) {
		return fmt.Errorf("maxima are wrong: %v", x)
	}
	return nil
}

// Values returns n values of a rank, of magnitudes that make the order of additions matter.
func Values(rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(rank), 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(12))))
	}
	return x
}

// Wires returns a wire of each kind.
func Wires() []comm.Wire {
	wires := []comm.Wire{comm.F32, comm.BF16}
	for _, f := range []quant.Format{quant.MXFP8, quant.NVFP4, quant.FP8Vec128} {
		w, err := comm.Quantized(quant.Quantizer{Format: f})
		if err != nil {
			panic(err)
		}
		wires = append(wires, w)
	}
	return wires
}

// sums compares AllReduce with what one process computes from the values of all ranks.
func (c *checker) sums() error {
	for _, wire := range Wires() {
		for _, n := range []int{0, 1, 127, 1000, 9001} {
			got := Values(c.g.Rank(), n)
			if err := c.g.AllReduce(got, wire); err != nil {
				return err
			}
			want := make([]float32, n)
			cuts := comm.Cut(n, c.g.Size(), wire.Block())
			for i := range c.g.Size() {
				part := want[cuts[i]:cuts[i+1]]
				parts := make([][]float32, c.g.Size())
				for rank := range parts {
					parts[rank] = Values(rank, n)[cuts[i]:cuts[i+1]]
					comm.Round(parts[rank], parts[rank], wire)
				}
				comm.Sum(part, parts...)
				comm.Round(part, part, wire)
			}
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					return fmt.Errorf("all-reduce of %d values as %s: element %d is %g, want %g", n, wire, i, got[i], want[i])
				}
			}
			if err := binary.Write(c.hash, binary.LittleEndian, got); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlap has several operations of one group under way, and waits in another order.
func (c *checker) overlap() error {
	const n = 8
	var requests [n]*comm.Request
	var dst [n][][]byte
	for k := range n {
		dst[k] = make([][]byte, c.g.Size())
		for i := range dst[k] {
			dst[k][i] = make([]byte, 1000*k)
		}
		requests[k] = c.g.StartAllGather(dst[k], data(c.g.Rank(), k, 1000*k))
	}
	for k := n - 1; k >= 0; k-- {
		if err := requests[k].Wait(); err != nil {
			return err
		}
		for i := range dst[k] {
			if !bytes.Equal(dst[k][i], data(i, k, 1000*k)) {
				return fmt.Errorf("overlapping all-gather %d: wrong data of rank %d", k, i)
			}
		}
	}
	return nil
}

// split divides the group into even and odd ranks, and those again, and sums in each while the
// group itself has an operation under way.
func (c *checker) split() error {
	half, err := c.g.Split("half", c.g.Rank()%2)
	if err != nil {
		return err
	}
	alone, err := half.Split("alone", half.Rank())
	if err != nil {
		return err
	}
	if want := (c.g.Size() + 1 - c.g.Rank()%2) / 2; half.Size() != want || half.Rank() != c.g.Rank()/2 || alone.Size() != 1 {
		return fmt.Errorf("split: got rank %d of %d, want %d of %d", half.Rank(), half.Size(), c.g.Rank()/2, want)
	}
	dst := make([][]byte, c.g.Size())
	for i := range dst {
		dst[i] = make([]byte, 10)
	}
	whole := c.g.StartAllGather(dst, data(c.g.Rank(), 0, 10))
	x := []float32{1, float32(c.g.Rank())}
	for _, g := range []*comm.Group{half, alone} {
		if err := g.AllReduce(x, comm.F32); err != nil {
			return err
		}
	}
	if x[0] != float32(half.Size()) {
		return fmt.Errorf("split: the sum of ones is %g in a group of %d", x[0], half.Size())
	}
	if err := whole.Wait(); err != nil {
		return err
	}
	for i := range dst {
		if !bytes.Equal(dst[i], data(i, 0, 10)) {
			return fmt.Errorf("all-gather beside another group: wrong data of rank %d", i)
		}
	}
	return nil
}
