package gemm

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Packed is an operand B in the panels of a kernel, for weights that many small products
// share. It uses the memory of its elements in the panel's type (two bytes each in BF16
// panels) in addition to the source tensor.
type Packed struct {
	source *quant.Tensor
	with   quant.Format // format of the other operand
	plan   plan
	data   []byte
	starts []int // offset of each block of KC positions
}

// Pack packs b for products with operands of the format a. The tensor must not change while
// the result is in use. Pack uses only the options Threads and Kernel.
func Pack(b *quant.Tensor, a quant.Format, o Options) (*Packed, error) {
	if err := checkOperand("b", b); err != nil {
		return nil, err
	}
	if err := checkThreads(o); err != nil {
		return nil, err
	}
	// The scales of A are not known yet: an empty A rules out no kernel.
	empty, err := quant.NewTensor(a, 0, b.StoredCols())
	if err != nil {
		return nil, fmt.Errorf("gemm: a: %w", err)
	}
	o.Accumulator = mma.Accumulator{}
	p, err := newPlan(empty, b, inPanels, o)
	if err != nil {
		return nil, err
	}
	packed := &Packed{source: b, with: a, plan: p}
	k := p.kernel
	size := 0
	for pc := 0; pc < p.k; pc += k.KC {
		packed.starts = append(packed.starts, size)
		size += ceilDiv(p.n, k.Lanes) * p.b.panelBytes(min(k.KC, p.k-pc))
	}
	packed.data = make([]byte, size)
	panels := ceilDiv(p.n, k.Lanes)
	parallel.For(len(packed.starts)*panels, 4, o.Threads, func(from, to int) {
		var w scratch
		w.reserve(k, min(k.KC, p.k))
		for i := from; i < to; i++ {
			pc := i / panels * k.KC
			kc := min(k.KC, p.k-pc)
			bytes := p.b.panelBytes(kc)
			p.b.pack(packed.data[packed.starts[i/panels]+i%panels*bytes:][:bytes], i%panels*k.Lanes, pc, kc, &w)
		}
	})
	return packed, nil
}

// Mul is the function Mul with b packed. It reads b's codes instead of its panels if a has so
// few rows that this is faster, if the kernel that b was packed for does not support the
// scales of a, or if Options.Kernel names another kernel.
func (b *Packed) Mul(c tensor.Dense, a *quant.Tensor, o Options) error {
	p, err := planDense(c, a, b.tensor(), inPanels, o)
	if err != nil {
		return err
	}
	return p.run(c, extent{0, p.m}, extent{0, p.n}, b.forPlan(&p), o)
}

// MulBF16 is the function MulBF16 with b packed.
func (b *Packed) MulBF16(c, a *quant.Tensor, o Options) error {
	p, err := planBF16(c, a, b.tensor(), inPanels, o)
	if err != nil {
		return err
	}
	return p.runBF16(c, b.forPlan(&p), o)
}

// Choose is the function Choose with b packed. Kernels that read panels are chosen from fewer
// rows of a on, since b needs no packing.
func (b *Packed) Choose(a *quant.Tensor, o Options) (Kernel, error) {
	return choose(a, b.tensor(), inPanels, o)
}

// tensor returns the source of b.
func (b *Packed) tensor() *quant.Tensor {
	if b == nil {
		return nil
	}
	return b.source
}

// forPlan returns b if p uses its panels, otherwise nil.
func (b *Packed) forPlan(p *plan) *Packed {
	if p.kernel == b.plan.kernel && p.chunk == b.plan.chunk && p.n == b.plan.n && p.k == b.plan.k {
		return b
	}
	return nil
}

// panels returns the panels from column jc and position pc on, or nil if b is nil.
func (b *Packed) panels(jc, pc int) []byte {
	if b == nil {
		return nil
	}
	k := b.plan.kernel
	return b.data[b.starts[pc/k.KC]+jc/k.Lanes*b.plan.b.panelBytes(min(k.KC, b.plan.k-pc)):]
}
