package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Product is C = A·Bᵀ to measure: A has M lines, B has N, both of K elements.
type Product struct {
	A, B    quant.Format
	M, N, K int
	Packed  bool // B is packed beforehand, as weights are
}

// quantized returns a matrix of normally distributed values in a block format.
func (t *Team) quantized(f quant.Format, rows, cols int) (*quant.Tensor, error) {
	x := tensor.New(rows, cols)
	fill(x.Data)
	return quant.Quantizer{Format: f}.Rowwise(x, quant.With{Threads: t.Threads()})
}

// weightBytes is the least that the weights of Gemv take together, so that they
// come from DRAM.
const weightBytes = 256e6

// Gemv measures a product with few lines of A, such as one, where reading B is
// most of the work: with several B in turn, which together are larger than
// caches. The rate counts the bytes of B, codes and scales; the limit is reading
// memory.
func (t *Team) Gemv(mem *Memory, p Product, budget time.Duration) ([]Result, error) {
	a, err := t.quantized(p.A, p.M, p.K)
	if err != nil {
		return nil, err
	}
	first, err := t.quantized(p.B, p.N, p.K)
	if err != nil {
		return nil, err
	}
	bytes := len(first.Codes) + len(first.ScaleBytes())
	weights := []*quant.Tensor{first}
	for len(weights)*bytes < weightBytes {
		weights = append(weights, clone(first))
	}
	c := tensor.New(p.M, p.N)
	o := gemm.Options{Threads: t.Threads()}
	kernel, err := chooseKernel(c, a, first, &o)
	if err != nil {
		return nil, err
	}
	r := Result{Op: "gemv", Format: p.B.Name, Source: p.A.Name, M: p.M, N: p.N, K: p.K, Threads: t.Threads(), Kernel: kernel.Name, Work: float64(bytes), Unit: Bytes}
	r.Time = t.MeasureAlone(budget*3/4, func(i int) {
		if e := gemm.Mul(c, a, weights[i%len(weights)], o); e != nil {
			err = e
		}
	})
	if err != nil {
		return nil, err
	}
	limit := t.Read(mem, len(weights)*bytes, budget/4)
	r.bound(limit, limit.Work)
	return []Result{r, limit}, nil
}

// clone returns a copy of t that shares nothing with it that is large.
func clone(t *quant.Tensor) *quant.Tensor {
	c := *t
	c.Codes, c.Scales, c.Scales32 = slices.Clone(t.Codes), slices.Clone(t.Scales), slices.Clone(t.Scales32)
	return &c
}

// Gemm measures a product, packing included but that of a B packed beforehand.
// The rate counts 2·M·N·K operations; the limit is the peak of the instruction
// that the kernel consists of.
func (t *Team) Gemm(p Product, budget time.Duration) ([]Result, error) {
	a, err := t.quantized(p.A, p.M, p.K)
	if err != nil {
		return nil, err
	}
	b, err := t.quantized(p.B, p.N, p.K)
	if err != nil {
		return nil, err
	}
	c := tensor.New(p.M, p.N)
	o := gemm.Options{Threads: t.Threads()}
	kernel, err := chooseKernel(c, a, b, &o)
	if err != nil {
		return nil, err
	}
	multiply := func() error { return gemm.Mul(c, a, b, o) }
	if p.Packed {
		packed, err := gemm.Pack(b, p.A, o)
		if err != nil {
			return nil, err
		}
		multiply = func() error { return packed.Mul(c, a, o) }
	}
	r := Result{Op: "gemm", Format: p.B.Name, Source: p.A.Name, M: p.M, N: p.N, K: p.K, Threads: t.Threads(), Kernel: kernel.Name, Work: 2 * float64(p.M) * float64(p.N) * float64(p.K)}
	r.Time = t.MeasureAlone(budget*3/4, func(int) {
		if e := multiply(); e != nil {
			err = e
		}
	})
	if err != nil {
		return nil, err
	}
	limit, err := t.Peak(kernel.Tier, kernel.Peak, budget/4)
	if err != nil {
		return nil, err
	}
	r.Unit = limit.Unit
	r.bound(limit, limit.Work)
	return []Result{r, limit}, nil
}

// chooseKernel returns the kernel that gemm.Mul takes for the operands, and asks
// for it by name.
func chooseKernel(c tensor.Dense, a, b *quant.Tensor, o *gemm.Options) (gemm.Kernel, error) {
	for _, k := range gemm.Kernels() {
		if k.Tier > cpu.Best() || k.Tier == cpu.Plain && k.Panel != "f32" {
			continue
		}
		o.Kernel = k.Name
		if gemm.Mul(c, a, b, *o) == nil {
			return k, nil
		}
	}
	o.Kernel = ""
	return gemm.Kernel{}, fmt.Errorf("no kernel multiplies %s by %s", a.Format, b.Format)
}
