package gemm

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A job is one product in progress with the workspace of its threads. Jobs are pooled: a
// second product of the same size allocates nothing.
type job struct {
	plan       plan
	packed     *Packed
	c          tensor.Dense // its first element is element (rows.from, cols.from) of the product
	rows, cols extent       // of the product, to compute
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
	index          int    // among the workers of the job
	run            func() // calls work, then leaves the job; started as a goroutine
	scratch        scratch
	a              []byte    // the packed block of A
	edge           []float32 // scratch tile for partial tiles of C; the sums of a vector kernel
	sums, running  []float32 // of a macro-kernel: MR rows with their scales, and C between chunks; sums of a vector kernel
	tail           []byte    // rows of B past the last whole group of a vector kernel
	chunks, steps  int       // of the panels over the current KC positions
	aPanel, bPanel int       // their sizes in bytes
}

var jobs = sync.Pool{New: func() any {
	j := &job{}
	j.changed.L = &j.mutex
	return j
}}

// run computes rows × cols of the product into c. It returns a *NaNScale if a scale
// of the operands is NaN.
func (p *plan) run(c tensor.Dense, rows, cols extent, packed *Packed, o Options) error {
	if c.Cols == 0 { // with any number of rows
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
	if p.unit != nil {
		p.unit.run(c, rows, cols, o)
		return p.nanScale(c, rows, cols)
	}
	if v := p.kernel.vector; v != nil && c.Rows > v.tileRows(p.k) {
		return p.runTiles(c, rows, cols, v.tileRows(p.k), o)
	}
	j := jobs.Get().(*job)
	j.plan, j.packed, j.c, j.rows, j.cols, j.accumulate, j.bias = *p, packed, c, rows, cols, o.Accumulate, o.Bias
	j.threads = parallel.Threads(o.Threads)
	if p.kernel.vector != nil {
		j.threads = min(j.threads, ceilDiv(c.Cols, vectorRows))
	} else {
		j.threads = min(j.threads, max(1, c.Rows*c.Cols/(p.kernel.MR*p.kernel.NR)))
	}
	j.reserve()
	j.inside.Store(int64(j.threads))
	for _, w := range j.workers[1:j.threads] {
		parallel.Go(w.run)
	}
	j.workers[0].work()
	parallel.Poll(func() bool { return j.inside.Load() == 1 }) // let the job return to the pool before the caller's next product
	clean := p.kernel.vector != nil && !j.vector.sawNaN.Load()
	j.leave()
	if clean {
		return nil
	}
	return p.nanScale(c, rows, cols)
}

// runTiles is run of a vector kernel for tiles of at most n rows of A.
func (p *plan) runTiles(c tensor.Dense, rows, cols extent, n int, o Options) (err error) {
	for from := rows.from; from < rows.to; from += n {
		tile := extent{from, min(from+n, rows.to)}
		if e := p.run(c.View(from-rows.from, tile.to-rows.from, 0, c.Cols), tile, cols, nil, o); err == nil {
			err = e
		}
	}
	return err
}

// height returns the number of rows of the product to compute.
func (j *job) height() int { return j.rows.to - j.rows.from }

// reserve grows the workspace to the size of the product.
func (j *job) reserve() {
	p, k := &j.plan, j.plan.kernel
	for len(j.workers) < j.threads {
		w := &worker{job: j, index: len(j.workers)}
		w.run = func() {
			w.work()
			j.leave()
		}
		j.workers = append(j.workers, w)
	}
	j.begin()
	if k.vector != nil {
		j.vector.sawNaN.Store(false)
		j.vector.spans = j.vector.spans.divide(j.vectorTasks(), j.threads)
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
		if k.macro != nil {
			grow(&w.sums, k.MR*(k.NR+1))
			grow(&w.running, mc*k.NR)
		}
		grow(&w.edge, k.MR*k.NR)
	}
}

// columns returns the number of rows of B (columns of C) to pack at a time. If A has few rows
// it returns fewNC, so that the panels of B stay in the second-level cache; repacking A for
// each block costs less. Otherwise it splits B evenly.
func (j *job) columns() int {
	k, n := j.plan.kernel, j.cols.to-j.cols.from
	if k.fewNC > 0 && j.packed == nil && j.height() <= k.fewNC/2 {
		return k.fewNC
	}
	return ceilDiv(ceilDiv(n, ceilDiv(n, k.NC)), k.NR) * k.NR
}

// tiles returns the number of tiles side by side in the columns of a block, the most where blocks differ.
func (j *job) tiles() int {
	return ceilDiv(min(j.columns(), j.cols.to-j.cols.from), j.plan.kernel.NR)
}

// work computes one thread's share of the product.
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

// split returns the number of rows of A to pack at a time, and the number of groups into which
// to split the columns of a block so that there are enough tasks: at most its tiles, since each group packs A.
func (j *job) split() (mc, groups int) {
	k, m := j.plan.kernel, j.height()
	blocks := ceilDiv(m, k.MC)
	if j.threads > 1 {
		blocks = max(blocks, j.threads*parallel.PerThread)
		blocks = ceilDiv(blocks, j.threads) * j.threads
	}
	unit := max(k.Lanes, k.MR)
	mc = ceilDiv(ceilDiv(m, blocks), unit) * unit
	mc = min(k.MC, max(mc, minRows(k, j.threads)))
	if blocks = ceilDiv(m, mc); j.threads > 1 && blocks < j.threads*parallel.PerThread {
		groups = min(ceilDiv(j.threads*parallel.PerThread, blocks), j.tiles())
	}
	return mc, max(1, groups)
}

// minRows returns the minimum number of rows of a task. With fewer rows, loading panels of B
// costs more than multiplying by them.
func minRows(k *kernel, threads int) int {
	if threads == 1 {
		return k.Lanes
	}
	return min(4*k.Lanes, k.MC)
}

// leave ends a thread's work. The last thread to leave returns the job to the pool.
// The product may be complete before a thread that started late arrives.
func (j *job) leave() {
	if j.inside.Add(-1) == 0 {
		j.plan, j.packed, j.c, j.bias, j.vector.scales = plan{}, nil, tensor.Dense{}, nil, vectorScales{} // do not retain the caller's memory
		jobs.Put(j)
	}
}

// width returns the number of the remaining columns that the next tile takes: NR, or one panel
// less if the last tile would otherwise have a single panel, which uses few registers.
func (k *kernel) width(rest int) int {
	if rest > k.NR && rest <= k.NR+k.Lanes && k.NR > 2*k.Lanes {
		return k.NR - k.Lanes
	}
	return min(k.NR, rest)
}

// tiles computes the mr×nr elements of C at (i, j), for all mr rows of the block, one tile
// after another. It divides outside the loop: a tile takes a few hundred nanoseconds.
func (w *worker) tiles(i, j, mr, nr int, b []byte, accumulate bool) {
	p, k, c := &w.job.plan, w.job.plan.kernel, &w.job.c
	dot, whole := k.dot[ceilDiv(nr, k.Lanes)-1], nr%k.Lanes == 0
	at := (i-w.job.rows.from)*c.Stride + j - w.job.cols.from
	panel, lane, offset := w.a, 0, 0
	next := 4 * k.MR // bytes from one tile to the next in a panel
	if p.a.width() == k.MR {
		next = w.aPanel * k.MR / k.Lanes
	}
	for r := 0; r < mr; r += k.MR {
		if lane == k.Lanes {
			panel, lane, offset = panel[w.aPanel:], 0, 0
		}
		a := unsafe.Pointer(&panel[offset])
		if whole && r+k.MR <= mr {
			dot(w.chunks, w.steps, a, unsafe.Pointer(&b[0]), w.bPanel, &c.Data[at], c.Stride, p.alpha, accumulate)
		} else {
			w.edgeTile(dot, at, min(k.MR, mr-r), nr, a, b, accumulate)
		}
		lane, offset = lane+k.MR, offset+next
		at += k.MR * c.Stride
	}
}

// edgeTile computes the mr×nr elements of C at the given index in a scratch tile.
func (w *worker) edgeTile(dot dotFunc, at, mr, nr int, a unsafe.Pointer, b []byte, accumulate bool) {
	p, k, c := &w.job.plan, w.job.plan.kernel, &w.job.c
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

// streamBytes is the size of C above which it is written with non-temporal stores, which do
// not read the destination first. A smaller C stays in the caches for its next reader.
const streamBytes = 8 << 20

// macroTile computes the mr×nr elements of C at (i, j), for all mr rows of the block.
func (w *worker) macroTile(i, j, mr, nr int, b []byte, accumulate bool) {
	p, k, c := &w.job.plan, w.job.plan.kernel, &w.job.c
	const float, cacheLine = 4, 64
	tiles, panels := w.steps/tileSteps, ceilDiv(nr, k.Lanes)
	next := panels*w.bPanel - (w.chunks-1)*w.bPanel/w.chunks
	at := (i-w.job.rows.from)*c.Stride + j - w.job.cols.from
	to, ldc := &c.Data[at], float*c.Stride
	stream := k.stream != nil && float*c.Rows*c.Cols > streamBytes && nr%k.Lanes == 0 && ldc%cacheLine == 0 &&
		uintptr(unsafe.Pointer(to))%cacheLine == 0
	if stream {
		if accumulate {
			for r := range mr {
				copy(w.running[r*nr:(r+1)*nr], c.Data[at+r*c.Stride:])
			}
		}
		to, ldc = &w.running[0], float*nr
	}
	k.macro[panels-1](macroArgs{
		chunks: w.chunks, tiles: tiles, each: ceilDiv(k.MR, max(1, tiles-1)),
		a: unsafe.Pointer(&w.a[0]), b: unsafe.Pointer(&b[0]), aPanel: w.aPanel, bPanel: w.bPanel, next: next,
		rows: mr, columns: 1<<nr - 1, accumulate: accumulate, work: unsafe.Pointer(&w.sums[0]), running: &w.running[0],
		c: to, ldc: ldc, alpha: p.alpha,
	})
	if stream {
		k.stream[panels-1](&c.Data[at], &w.running[0], float*c.Stride, mr)
	}
}

// addBias sets C to the bias, or adds the bias if accumulating.
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

// bf16Rows is the number of rows of C that runBF16 computes at a time, for bf16NC columns.
const bf16Rows = 256

// runBF16 computes the product tile by tile in float32 and rounds each tile to BF16.
func (p *plan) runBF16(c *quant.Tensor, packed *Packed, o Options) (err error) {
	if p.n == 0 { // with any number of rows
		return nil
	}
	buffer := bf16Buffers.Get().(*[]float32)
	defer bf16Buffers.Put(buffer)
	for i := 0; i < p.m; i += bf16Rows {
		rows := extent{i, min(i+bf16Rows, p.m)}
		for j := 0; j < p.n; j += bf16NC {
			cols := extent{j, min(j+bf16NC, p.n)}
			width := cols.to - cols.from
			grow(buffer, (rows.to-rows.from)*width)
			d := tensor.Of(rows.to-rows.from, width, (*buffer)[:(rows.to-rows.from)*width])
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

var bf16Buffers = sync.Pool{New: func() any { return new([]float32) }}

// must panics on an error that only a bug of this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
