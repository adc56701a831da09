package gemm

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Packed is an operand B in the panels of a kernel, kept: weights that many
// small products share. It takes the memory of its elements in the panel's type
// (two bytes each in BF16 panels) beside the tensor it was packed from.
type Packed struct {
	source *quant.Tensor
	with   quant.Format // of the other operand
	plan   plan
	data   []byte
	starts []int // of each block of KC positions
}

// Pack packs b for products with operands of the format a. The tensor must not
// change as long as the result is used. Of the options, Threads and Kernel count.
func Pack(b *quant.Tensor, a quant.Format, o Options) (*Packed, error) {
	if err := checkOperand("b", b); err != nil {
		return nil, err
	}
	if err := checkThreads(o); err != nil {
		return nil, err
	}
	// The scales of A are not known yet: an empty A has none that do not fit.
	empty, err := quant.NewTensor(a, 0, b.Width())
	if err != nil {
		return nil, fmt.Errorf("gemm: a: %w", err)
	}
	p, err := newPlan(empty, b, true, o)
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

// Mul is the function Mul with b packed. It uses b as it is where a has so few lines
// that its codes are read faster than its panels, where the kernel that b was packed
// for cannot take the scales of a, or where another kernel is asked for.
func (b *Packed) Mul(c tensor.Dense, a *quant.Tensor, o Options) error {
	p, err := planDense(c, a, b.tensor(), true, o)
	if err != nil {
		return err
	}
	return p.run(c, extent{0, p.m}, extent{0, p.n}, b.forPlan(&p), o)
}

// MulBF16 is the function MulBF16 with b packed.
func (b *Packed) MulBF16(c, a *quant.Tensor, o Options) error {
	p, err := planBF16(c, a, b.tensor(), true, o)
	if err != nil {
		return err
	}
	return p.runBF16(c, b.forPlan(&p), o)
}

// Choose is the function Choose with b packed: Mul takes it from fewer lines of a on
// than where it has to pack b.
func (b *Packed) Choose(a *quant.Tensor, o Options) (Kernel, error) {
	return choose(a, b.tensor(), true, o)
}

// tensor returns what was packed.
func (b *Packed) tensor() *quant.Tensor {
	if b == nil {
		return nil
	}
	return b.source
}

// forPlan returns b where its panels are those that p needs, or nil.
func (b *Packed) forPlan(p *plan) *Packed {
	if p.kernel == b.plan.kernel && p.chunk == b.plan.chunk && p.n == b.plan.n && p.k == b.plan.k {
		return b
	}
	return nil
}

// panels returns the panels from column jc and position pc on; nil where b is nil.
func (b *Packed) panels(jc, pc int) []byte {
	if b == nil {
		return nil
	}
	k := b.plan.kernel
	return b.data[b.starts[pc/k.KC]+jc/k.Lanes*b.plan.b.panelBytes(min(k.KC, b.plan.k-pc)):]
}
