package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A job is one product under way, with the workspace of its threads. Jobs are
// pooled, so that a product allocates nothing once there was one of its size.
type job struct {
	plan       plan
	packed     *Packed
	c          tensor.Dense // its first element is that of (rows.from, cols.from)
	rows, cols extent       // the part of the product to compute
	accumulate bool
	bias       []float32

	b       []byte // the packed block of B
	vector  vectorJob
	workers []*worker
	threads int
	inside  atomic.Int64 // threads that have not left the job
	phases
}

type extent struct{ from, to int }

// A worker is one thread of a job.
type worker struct {
	job            *job
	run            func() // multiply, as a goroutine runs it
	scratch        scratch
	a              []byte    // the packed block of A
	edge           []float32 // a tile, where C ends within one; what a vector kernel computes
	sums, running  []float32 // of a strip kernel: MR lines with their scales, and C between chunks
	tail           []byte    // lines of B, past the last group of a vector kernel
	chunks, steps  int       // of the panels of this round
	aPanel, bPanel int       // their bytes
}

var jobs = sync.Pool{New: func() any {
	j := &job{}
	j.changed.L = &j.mutex
	return j
}}

// run computes the part rows × cols of the product into c, whose first element
// is that of the part. It reports a NaN scale that was among the factors.
func (p *plan) run(c tensor.Dense, rows, cols extent, packed *Packed, o Options) error {
	if c.Cols == 0 { // of which there may be any number of rows
		return nil
	}
	if p.k == 0 || c.Rows == 0 {
		for i := range c.Rows {
			for k := range c.Row(i) {
				if !o.Accumulate {
					c.Row(i)[k] = 0
				}
				if o.Bias != nil {
					c.Row(i)[k] += o.Bias[cols.from+k]
				}
			}
		}
		return nil
	}
	j := jobs.Get().(*job)
	j.plan, j.packed, j.c, j.rows, j.cols, j.accumulate, j.bias = *p, packed, c, rows, cols, o.Accumulate, o.Bias
	j.threads = o.Threads
	if j.threads <= 0 {
		j.threads = runtime.GOMAXPROCS(0)
	}
	if p.kernel.vector != nil {
		j.threads = min(j.threads, ceilDiv(c.Cols, vectorLines))
	} else {
		j.threads = min(j.threads, max(1, c.Rows*c.Cols/(p.kernel.MR*p.kernel.NR)))
	}
	j.reserve()
	j.inside.Store(int64(j.threads))
	for _, w := range j.workers[1:j.threads] {
		go w.run()
	}
	j.workers[0].work()
	for range patience { // so that the job is free for the caller's next product
		if j.inside.Load() == 1 {
			break
		}
		runtime.Gosched()
	}
	j.leave()
	return p.nanScale(c, rows, cols)
}

// reserve makes the workspace large enough.
func (j *job) reserve() {
	p, k := &j.plan, j.plan.kernel
	for len(j.workers) < j.threads {
		w := &worker{job: j}
		w.run = func() {
			w.work()
			j.leave()
		}
		j.workers = append(j.workers, w)
	}
	j.begin()
	if k.vector != nil {
		j.prepare()
		return
	}
	kc := min(k.KC, p.k)
	if j.packed == nil {
		grow(&j.b, ceilDiv(min(j.columns(), j.cols.to-j.cols.from), k.Lanes)*p.b.panelBytes(kc))
	}
	mc, _ := j.split()
	for _, w := range j.workers[:j.threads] {
		grow(&w.a, ceilDiv(mc, k.Lanes)*p.a.panelBytes(kc))
		w.scratch.reserve(k, kc)
		if k.strips != nil {
			grow(&w.sums, k.MR*(k.NR+1))
			grow(&w.running, mc*k.NR)
		}
		grow(&w.edge, k.MR*k.NR)
	}
}

// columns returns the lines of B to pack at a time: fewer where A has few, so that panels
// are multiplied by before they leave the second cache; those of A are packed again for
// each, which takes less. Else they are about as many each time.
func (j *job) columns() int {
	k, n := j.plan.kernel, j.cols.to-j.cols.from
	if k.fewNC > 0 && j.packed == nil && j.rows.to-j.rows.from <= k.fewNC/2 {
		return k.fewNC
	}
	return ceilDiv(ceilDiv(n, ceilDiv(n, k.NC)), k.NR) * k.NR
}

// work is one thread's share of the product.
func (w *worker) work() {
	if w.job.plan.kernel.vector != nil {
		w.multiplyVector()
	} else {
		w.multiply()
	}
}

func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}

// split returns how many rows are packed at a time, and into how many groups the
// columns of a block are split besides, so that every thread has work.
func (j *job) split() (mc, groups int) {
	k, m := j.plan.kernel, j.rows.to-j.rows.from
	const perThread = 4 // tasks, so that threads end together
	blocks := ceilDiv(m, k.MC)
	if j.threads > 1 {
		blocks = max(blocks, j.threads*perThread)
		blocks = ceilDiv(blocks, j.threads) * j.threads
	}
	lines := max(k.Lanes, k.MR)
	mc = ceilDiv(ceilDiv(m, blocks), lines) * lines
	mc = min(k.MC, max(mc, minRows(k, j.threads)))
	if blocks = ceilDiv(m, mc); blocks < j.threads {
		groups = ceilDiv(j.threads*perThread, blocks)
	}
	return mc, max(1, groups)
}

// minRows returns the fewest rows worth a task of their own: with fewer, loading
// panels of B costs more than multiplying by them.
func minRows(k *kernel, threads int) int {
	if threads == 1 {
		return k.Lanes
	}
	return min(4*k.Lanes, k.MC)
}

// leave is the end of a thread's work. The product is complete then, as every
// phase is; a thread that started late may still find that out, and the last one
// to do so gives the job back.
func (j *job) leave() {
	if j.inside.Add(-1) == 0 {
		j.plan, j.packed, j.c, j.bias = plan{}, nil, tensor.Dense{}, nil // keep nothing of the caller's
		jobs.Put(j)
	}
}

// width returns how many of rest columns a tile takes: NR, or one panel less where
// that leaves two for the last tile in place of one, which would use few registers.
func (k *kernel) width(rest int) int {
	if rest > k.NR && rest <= k.NR+k.Lanes && k.NR > 2*k.Lanes {
		return k.NR - k.Lanes
	}
	return min(k.NR, rest)
}

// lane returns the panel of A that holds row ir of the block, from its lane on.
func (w *worker) lane(ir int) unsafe.Pointer {
	lanes := w.job.plan.kernel.Lanes
	return unsafe.Pointer(&w.a[ir/lanes*w.aPanel+ir%lanes*4])
}

// tile computes the mr×nr elements of C from (i, j) on.
func (w *worker) tile(i, j, mr, nr int, a unsafe.Pointer, b []byte, accumulate bool) {
	p, k, c := &w.job.plan, w.job.plan.kernel, &w.job.c
	panels := ceilDiv(nr, k.Lanes)
	dot := k.dot[panels-1]
	at := (i-w.job.rows.from)*c.Stride + j - w.job.cols.from
	if mr == k.MR && nr%k.Lanes == 0 {
		dot(w.chunks, w.steps, a, unsafe.Pointer(&b[0]), w.bPanel, &c.Data[at], c.Stride, p.alpha, accumulate)
		return
	}
	if accumulate {
		for r := range mr {
			copy(w.edge[r*k.NR:], c.Data[at+r*c.Stride:at+r*c.Stride+nr])
		}
	}
	dot(w.chunks, w.steps, a, unsafe.Pointer(&b[0]), w.bPanel, &w.edge[0], k.NR, p.alpha, accumulate)
	for r := range mr {
		copy(c.Data[at+r*c.Stride:at+r*c.Stride+nr], w.edge[r*k.NR:])
	}
}

// streamBytes is the size of C above which it goes past the caches: to write it there, C as
// it was would have to be read first. A smaller one stays in caches for what reads it next.
const streamBytes = 8 << 20

// strip computes the mr×nr elements of C from (i, j) on: all rows of the block.
func (w *worker) strip(i, j, mr, nr int, b []byte, accumulate bool) {
	p, k, c := &w.job.plan, w.job.plan.kernel, &w.job.c
	const float, line = 4, 64
	tiles, panels := w.steps/tileSteps, ceilDiv(nr, k.Lanes)
	next := panels*w.bPanel - (w.chunks-1)*w.bPanel/w.chunks
	at := (i-w.job.rows.from)*c.Stride + j - w.job.cols.from
	to, ldc := &c.Data[at], float*c.Stride
	stream := k.stream != nil && float*c.Rows*c.Cols > streamBytes && nr%k.Lanes == 0 && ldc%line == 0 && uintptr(unsafe.Pointer(to))%line == 0
	if stream {
		if accumulate {
			for r := range mr {
				copy(w.running[r*nr:(r+1)*nr], c.Data[at+r*c.Stride:])
			}
		}
		to, ldc = &w.running[0], float*nr
	}
	k.strips[panels-1](w.chunks, tiles, ceilDiv(k.MR, max(1, tiles-1)), unsafe.Pointer(&w.a[0]), unsafe.Pointer(&b[0]), w.aPanel, w.bPanel, next, mr, 1<<nr-1, accumulate,
		unsafe.Pointer(&w.sums[0]), &w.running[0], to, ldc, p.alpha)
	if stream {
		k.stream[panels-1](&c.Data[at], &w.running[0], float*c.Stride, mr)
	}
}

// addBias makes C the bias, or adds the bias to it.
func (w *worker) addBias(i0, i1, j0, j1 int) {
	j := w.job
	bias := j.bias[j0:j1]
	for i := i0; i < i1; i++ {
		row := j.c.Row(i - j.rows.from)[j0-j.cols.from : j1-j.cols.from]
		if !j.accumulate {
			copy(row, bias)
			continue
		}
		for k, b := range bias {
			row[k] += b
		}
	}
}

// partRows is the rows of C that runBF16 computes at a time, with as many columns
// as kernels pack at a time.
const partRows = 256

// runBF16 computes the product part by part in float32, and rounds each.
func (p *plan) runBF16(c *quant.Tensor, packed *Packed, o Options) (err error) {
	if p.n == 0 { // of which there may be any number of rows
		return nil
	}
	part := parts.Get().(*[]float32)
	defer parts.Put(part)
	for i := 0; i < p.m; i += partRows {
		rows := extent{i, min(i+partRows, p.m)}
		for j := 0; j < p.n; j += bf16NC {
			cols := extent{j, min(j+bf16NC, p.n)}
			width := cols.to - cols.from
			grow(part, (rows.to-rows.from)*width)
			d := tensor.Of(rows.to-rows.from, width, (*part)[:(rows.to-rows.from)*width])
			place := func(r int) []byte {
				return c.Codes[((rows.from+r)*p.n+cols.from)*2:][:2*width]
			}
			for r := range d.Rows {
				if o.Accumulate {
					must(tensor.FromBytes(d.Row(r), place(r), format.BF16))
				}
			}
			if e := p.run(d, rows, cols, packed, o); err == nil {
				err = e
			}
			for r := range d.Rows {
				must(tensor.ToBytes(place(r), d.Row(r), format.BF16))
			}
		}
	}
	return err
}

var parts = sync.Pool{New: func() any { return new([]float32) }}

// must panics where slices that this package sized do not fit.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
