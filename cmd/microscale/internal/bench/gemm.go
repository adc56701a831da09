package bench

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Product is C = A·Bᵀ to measure: A has M rows, B has N, of K elements each.
type Product struct {
	A, B    quant.Format
	M, N, K int
	Packed  bool // pack B beforehand, as for weights
}

// quantized returns a matrix of normally distributed values in a block format.
func (t *Team) quantized(f quant.Format, rows, cols int) (*quant.Tensor, error) {
	x := tensor.New(rows, cols)
	fill(x.Data)
	return quant.Quantizer{Format: f}.Rowwise(x, quant.With{Threads: t.Threads()})
}

// Estimate returns the approximate time of the product, extrapolated from one of at most 512
// in each dimension.
func (t *Team) Estimate(p Product) (time.Duration, error) {
	const small = 512
	m, n, k := min(p.M, small), min(p.N, small), min(p.K, small)
	a, err := t.quantized(p.A, m, k)
	if err != nil {
		return 0, err
	}
	b, err := t.quantized(p.B, n, k)
	if err != nil {
		return 0, err
	}
	r, _, err := t.multiply(tensor.New(m, n), a, b, p.Packed, 0)
	if err != nil {
		return 0, err
	}
	times := float64(p.M) / float64(m) * float64(p.N) / float64(n) * float64(p.K) / float64(k)
	return time.Duration(r.Time.Median * times * float64(time.Second)), nil
}

// weightBytes is the total size of the weights of Gemv, so large that they come from DRAM.
const weightBytes = 256_000_000

// headerBytes is the approximate size of a tensor besides its codes and scales: the struct, a
// pointer to it, and allocator rounding.
const headerBytes = int(unsafe.Sizeof(quant.Tensor{})) + 16

// copies returns the number of tensors, each with the given bytes of codes and scales, that
// take weightBytes in memory. It returns at least one, and counts the header so that small
// tensors are not too many.
func copies(bytes int) int {
	each := bytes + headerBytes
	return (weightBytes + each - 1) / each
}

// Gemv measures a product with few rows of A, where reading B dominates. It cycles through
// several B of 256 MB in total, more than the caches hold. For B of some hundred bytes or
// less, most of that is the header of the tensors, and the codes may stay in a cache. The rate
// counts the bytes of B, codes and scales. The limit is reading memory. Both are in huge pages if the
// system has them, as the weights of models are.
func (t *Team) Gemv(p Product, budget time.Duration) ([]Result, error) {
	a, err := t.quantized(p.A, p.M, p.K)
	if err != nil {
		return nil, err
	}
	first, err := t.quantized(p.B, p.N, p.K)
	if err != nil {
		return nil, err
	}
	r, err := t.gemv(a, weights(first), budget*3/4)
	if err != nil {
		return nil, err
	}
	limit := t.Read(&Memory{huge: true}, max(int(r.Work), weightBytes), budget/4)
	r.bound(limit, limit.Work)
	return []Result{r, limit}, nil
}

// weights returns copies of a tensor that take weightBytes in memory.
func weights(first *quant.Tensor) []*quant.Tensor {
	var list []*quant.Tensor
	for range copies(len(first.Codes) + len(first.ScaleBytes())) {
		list = append(list, clone(first))
	}
	return list
}

// gemv measures the product of a and each of the weights in turn. The rate counts the bytes
// of one.
func (t *Team) gemv(a *quant.Tensor, weights []*quant.Tensor, budget time.Duration) (Result, error) {
	b := weights[0]
	c := tensor.New(a.Rows(), b.Rows())
	o := gemm.Options{Threads: t.Threads()}
	kernel, err := gemm.Choose(a, b, o)
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Op: "gemv", Format: b.Format.Name, Source: a.Format.Name, M: a.Rows(), N: b.Rows(), K: b.Cols(), Threads: t.Threads(),
		Kernel: kernel.Name,
		Work:   float64(len(b.Codes) + len(b.ScaleBytes())), Unit: Bytes, Limit: math.NaN(),
	}
	r.Time = t.MeasureAlone(budget, func(i int) {
		if e := gemm.Mul(c, a, weights[i%len(weights)], o); e != nil {
			err = e
		}
	})
	return r, err
}

// clone returns a copy of t that shares no buffers with it.
func clone(t *quant.Tensor) *quant.Tensor {
	c := *t
	c.Codes, c.Scales, c.Scales32 = make([]byte, len(t.Codes)), slices.Clone(t.Scales), slices.Clone(t.Scales32)
	memory.Huge(c.Codes)
	copy(c.Codes, t.Codes)
	return &c
}

// Gemm measures a product, including packing, except of a B packed beforehand. The rate counts
// 2·M·N·K operations. The limit is the peak of the instruction that bounds the kernel.
func (t *Team) Gemm(p Product, budget time.Duration) ([]Result, error) {
	a, err := t.quantized(p.A, p.M, p.K)
	if err != nil {
		return nil, err
	}
	b, err := t.quantized(p.B, p.N, p.K)
	if err != nil {
		return nil, err
	}
	r, kernel, err := t.multiply(tensor.New(p.M, p.N), a, b, p.Packed, budget*3/4)
	if err != nil {
		return nil, err
	}
	limit, err := t.Peak(kernel.Peak, budget/4)
	if err != nil {
		return nil, err
	}
	r.Unit = limit.Unit
	r.bound(limit, limit.Work)
	return []Result{r, limit}, nil
}

// multiply measures c = a·bᵀ, and returns the kernel that ran.
func (t *Team) multiply(c tensor.Dense, a, b *quant.Tensor, prepack bool, budget time.Duration) (Result, gemm.Kernel, error) {
	o := gemm.Options{Threads: t.Threads()}
	kernel, err := gemm.Choose(a, b, o)
	if err != nil {
		return Result{}, kernel, err
	}
	pass := func() error { return gemm.Mul(c, a, b, o) }
	if prepack {
		packed, err := gemm.Pack(b, a.Format, o)
		if err != nil {
			return Result{}, kernel, err
		}
		if kernel, err = packed.Choose(a, o); err != nil {
			return Result{}, kernel, err
		}
		pass = func() error { return packed.Mul(c, a, o) }
	}
	r := Result{
		Op: "gemm", Format: b.Format.Name, Source: a.Format.Name, M: c.Rows, N: c.Cols, K: a.Cols(), Packed: prepack, Threads: t.Threads(),
		Kernel: kernel.Name,
		Work:   2 * float64(c.Rows) * float64(c.Cols) * float64(a.Cols()), Unit: Floats, Limit: math.NaN(),
	}
	clear(c.Data) // fault in its pages: the first run may be the only one
	r.Time = t.MeasureAlone(budget, func(int) {
		if e := pass(); e != nil {
			err = e
		}
	})
	return r, kernel, err
}
